// SPDX-License-Identifier: GPL-2.0
/*
 * The event queue as uapi/csd.h describes it: numbers, readers, overflow, poll.
 * Makes events by creating and destroying meshes.  Expects bound drives in no
 * mesh and nobody else at work.
 */
#include <pthread.h>
#include <signal.h>

#include "csdtest.h"

/* More than the queue keeps: 4,096 events of this size would be 192 KiB */
#define MANY 4200

/* Two events: created, destroyed */
static void make_two(int fd)
{
	struct csd_mesh_create create = { .size = sizeof(create), .drives = 1 };
	struct csd_mesh_destroy destroy = { .size = sizeof(destroy) };

	expect(call(fd, CSD_IOC_MESH_CREATE, &create), 0, "creating a mesh of csd0");
	destroy.mesh = create.mesh;
	expect(call(fd, CSD_IOC_MESH_DESTROY, &destroy), 0, "destroying it");
}

static struct csd_event next(int fd)
{
	struct csd_event event;

	memset(&event, 0xa5, sizeof(event));
	equal(read(fd, &event, sizeof(event)), sizeof(event), "bytes of an event (%s)", errname(errno));
	equal(event.size, sizeof(event), "size of an event");
	return event;
}

static void numbers(void)
{
	int fd = open_csd(O_NONBLOCK), actor = open_csd(0);
	uint64_t number = 0, time = 0;
	struct timespec real;

	destroy_all(actor);
	close(fd);
	fd = open_csd(O_NONBLOCK);
	for (int i = 0; i < 10; i++)
		make_two(actor);
	for (int i = 0; i < 20; i++) {
		struct csd_event event = next(fd);

		equal(event.type, i % 2 ? CSD_EVENT_MESH_DESTROYED : CSD_EVENT_MESH_CREATED, "type of event %d", i);
		if (number)
			equal(event.number, number + 1, "number of event %d", i);
		holds(event.number >= 1, "the first number");
		holds(event.time_ns >= time, "times do not run backwards");
		equal(event.mesh, 0, "mesh of event %d", i);
		equal(event.status, 0, "status of event %d", i);
		number = event.number;
		time = event.time_ns;
	}
	clock_gettime(CLOCK_REALTIME, &real);
	holds(time / 1000000000 + 60 > (uint64_t)real.tv_sec && time / 1000000000 <= (uint64_t)real.tv_sec,
	      "time_ns is CLOCK_REALTIME");
}

static void only_what_follows(void)
{
	int actor = open_csd(0), early = open_csd(O_NONBLOCK), late;
	struct csd_event first, second;
	char byte[sizeof(struct csd_event)];

	destroy_all(actor);
	while (read(early, byte, sizeof(byte)) > 0)
		;
	make_two(actor);
	late = open_csd(O_NONBLOCK);
	equal(read(late, byte, sizeof(byte)), -1ULL, "a reader that came late has nothing to read");
	make_two(actor);
	next(early);
	next(early);
	first = next(early);
	second = next(late);
	equal(memcmp(&first, &second, sizeof(first)), 0, "two readers see the same event");
	next(early);
	second = next(late);
	equal(second.number, first.number + 1, "number of the next");
	equal(read(early, byte, sizeof(byte)), -1ULL, "the early reader is at the end");
	expect(errno, EAGAIN, "the early reader is at the end");
}

static void several_at_once(void)
{
	int actor = open_csd(0), fd;
	struct csd_event events[8];

	destroy_all(actor);
	fd = open_csd(O_NONBLOCK);
	make_two(actor);
	make_two(actor);
	/* Room for 3 and a half: whole ones only */
	equal(read(fd, events, 3 * sizeof(events[0]) + sizeof(events[0]) / 2), 3 * sizeof(events[0]),
	      "bytes of three events");
	equal(events[2].number, events[0].number + 2, "number of the third");
	equal(read(fd, events, sizeof(events)), sizeof(events[0]), "bytes of the event that was left");
}

static void overflow(void)
{
	int actor = open_csd(0), slow, other;
	struct csd_event event, previous;
	uint64_t first, seen = 0, lost = 0, overflows = 0, made = 0;

	destroy_all(actor);
	slow = open_csd(O_NONBLOCK);
	other = open_csd(O_NONBLOCK);
	make_two(actor);
	first = next(other).number;
	next(other);
	for (made = 2; made < MANY; made += 2) {
		make_two(actor);
		event = next(other);
		holds(event.type != CSD_EVENT_OVERFLOW, "a reader that keeps up loses nothing");
		next(other);
	}
	memset(&previous, 0, sizeof(previous));
	while (read(slow, &event, sizeof(event)) == sizeof(event)) {
		if (event.type == CSD_EVENT_OVERFLOW) {
			overflows++;
			lost += event.detail;
			equal(seen, 0, "events before the overflow");
			continue;
		}
		if (seen)
			equal(event.number, previous.number + 1, "number of the next event");
		else
			equal(event.number, first + lost, "number of the first event after the overflow");
		seen++;
		previous = event;
	}
	expect(errno, EAGAIN, "at the end");
	equal(overflows, 1, "overflow events after %llu events", (unsigned long long)made);
	equal(seen + lost, made, "events seen and lost");
	holds(lost > 0 && seen > 0, "some are lost, some are kept");
	printf("%llu events, %llu kept\n", (unsigned long long)made, (unsigned long long)seen);
}

static void polling(void)
{
	int actor = open_csd(0), fd;
	struct pollfd poller;

	destroy_all(actor);
	fd = open_csd(O_NONBLOCK);
	poller = (struct pollfd){ .fd = fd, .events = POLLIN };
	equal(poll(&poller, 1, 50), 0, "poll with no event there");
	make_two(actor);
	equal(poll(&poller, 1, 0), 1, "poll with an event there");
	equal(poller.revents, POLLIN, "what poll says");
	next(fd);
	equal(poll(&poller, 1, 0), 1, "poll with one left");
	next(fd);
	equal(poll(&poller, 1, 0), 0, "poll with none left");
}

static void *later(void *arg)
{
	usleep(200000);
	make_two(*(int *)arg);
	return NULL;
}

static void waking(void)
{
	int actor = open_csd(0), fd;
	struct pollfd poller;
	pthread_t thread;

	destroy_all(actor);
	fd = open_csd(0);
	pthread_create(&thread, NULL, later, &actor);
	equal(next(fd).type, CSD_EVENT_MESH_CREATED, "what a blocked read wakes up with");
	pthread_join(thread, NULL);
	next(fd);

	poller = (struct pollfd){ .fd = fd, .events = POLLIN };
	pthread_create(&thread, NULL, later, &actor);
	equal(poll(&poller, 1, 20000), 1, "a blocked poll wakes up");
	pthread_join(thread, NULL);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void interrupted(void)
{
	int fd = open_csd(0);
	struct csd_event event;
	struct sigaction action = { .sa_handler = on_alarm };

	sigaction(SIGALRM, &action, NULL);
	alarm(1);
	equal(read(fd, &event, sizeof(event)), -1ULL, "a read that a signal ends");
	expect(errno, EINTR, "a read that a signal ends");
}

static void *reader(void *arg)
{
	uint64_t sum = 0;
	int fd = *(int *)arg;

	for (int i = 0; i < 200; i++)
		sum += next(fd).number;
	return (void *)sum;
}

static void many_readers(void)
{
	pthread_t threads[8];
	int fds[8], actor = open_csd(0);
	uint64_t sums[8];

	destroy_all(actor);
	for (int i = 0; i < 8; i++)
		fds[i] = open_csd(0);
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, reader, &fds[i]);
	for (int i = 0; i < 100; i++)
		make_two(actor);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], (void **)&sums[i]);
	for (int i = 1; i < 8; i++)
		equal(sums[i], sums[0], "sum of the numbers that reader %d saw", i);
}

static const struct test tests[] = {
	{ "events are numbered without gaps, in time order, on CLOCK_REALTIME", numbers },
	{ "a reader sees what happens after it was opened, and the same as others", only_what_follows },
	{ "one read gives several events, but only whole ones", several_at_once },
	{ "a slow reader gets one overflow event that counts exactly what it lost, others lose nothing", overflow },
	{ "poll says POLLIN while there is an event", polling },
	{ "a blocked read and a blocked poll wake up", waking },
	{ "a signal ends a blocked read with EINTR", interrupted },
	{ "eight readers at once see the same 200 events", many_readers },
};

main_of(tests)

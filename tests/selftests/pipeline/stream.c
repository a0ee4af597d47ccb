// SPDX-License-Identifier: GPL-2.0
/*
 * A pipeline's descriptor as uapi/csd.h describes it: read, poll, progress, close.
 * Expects three drives in mesh 0; the first bytes of csd1's storage are those of
 * the file $NOISE.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "csdtest.h"

#define WINDOW 65536

static unsigned char *noise;
static size_t noise_len;

static void load_noise(void)
{
	const char *path = getenv("NOISE");
	int fd = path ? open(path, O_RDONLY) : -1;
	struct stat stat;

	if (fd < 0 || fstat(fd, &stat))
		fail("no file $NOISE");
	noise_len = stat.st_size;
	noise = mmap(NULL, noise_len, PROT_READ, MAP_PRIVATE, fd, 0);
	holds(noise != MAP_FAILED, "mapping $NOISE");
	close(fd);
}

/* checksum@csd0,checksum@csd2 on the first bytes of csd1 */
static int try_start(int csd, uint64_t length, uint32_t chunk, struct csd_pipeline_start *start)
{
	static struct csd_stage stages[2];

	for (int i = 0; i < 2; i++)
		stages[i] = (struct csd_stage) {
			.function = 4, .drive = i * 2,
			.params = (uintptr_t)checksum_params, .params_len = sizeof(checksum_params),
		};
	*start = (struct csd_pipeline_start) {
		.size = sizeof(*start), .source_drive = 1, .source_length = length,
		.stages = (uintptr_t)stages, .stage_count = 2, .chunk_bytes = chunk,
		.window_bytes = WINDOW,
	};
	return call(csd, CSD_IOC_PIPELINE_START, start);
}

static int start(int csd, uint64_t length, uint32_t chunk)
{
	struct csd_pipeline_start start;

	expect(try_start(csd, length, chunk, &start), 0, "CSD_IOC_PIPELINE_START");
	return start.fd;
}

static struct csd_pipeline_progress progress_of(int fd)
{
	struct csd_pipeline_progress progress = { .size = sizeof(progress) };

	expect(call(fd, CSD_IOC_PIPELINE_PROGRESS, &progress), 0, "CSD_IOC_PIPELINE_PROGRESS");
	return progress;
}

static uint64_t memory_of(int csd, uint32_t drive)
{
	struct csd_drive_info info = { .size = sizeof(info), .drive = drive };

	expect(call(csd, CSD_IOC_DRIVE_INFO, &info), 0, "CSD_IOC_DRIVE_INFO");
	return info.memory_used;
}

static void odd_reads(void)
{
	int csd = open_csd(0), fd;
	static unsigned char buffer[100000];
	uint64_t at = 0;
	uint32_t state = 1;
	ssize_t got;

	load_noise();
	fd = start(csd, 300001, 8192);
	for (;;) {
		size_t want;

		state = state * 1664525 + 1013904223;
		want = state >> 8 & 1 ? state >> 12 & 7 : state >> 12 & 0x7fff;
		want += !want;
		got = read(fd, buffer, want);
		holds(got >= 0, "reading %zu bytes: %s", want, errname(errno));
		if (!got)
			break;
		holds((size_t)got <= want, "bytes read");
		equal(memcmp(buffer, noise + at, got), 0, "%zd bytes at %llu", got, (unsigned long long)at);
		at += got;
	}
	equal(at, 300001, "bytes in all");
	equal(read(fd, buffer, 10), 0, "reading again at the end");
	equal(read(fd, buffer, 0), 0, "reading nothing");
	close(fd);
}

static void polling(void)
{
	int csd = open_csd(0), fd;
	static unsigned char buffer[WINDOW];
	struct pollfd poller;
	uint64_t at = 0;

	load_noise();
	fd = start(csd, 1 << 20, 16384);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	poller = (struct pollfd){ .fd = fd, .events = POLLIN };
	while (at < 1 << 20) {
		ssize_t got;

		equal(poll(&poller, 1, 20000), 1, "poll at %llu", (unsigned long long)at);
		holds(poller.revents & POLLIN, "poll says %#x at %llu", poller.revents, (unsigned long long)at);
		got = read(fd, buffer, sizeof(buffer));
		holds(got > 0, "POLLIN, and then read gives %zd (%s)", got, errname(errno));
		equal(memcmp(buffer, noise + at, got), 0, "%zd bytes at %llu", got, (unsigned long long)at);
		at += got;
	}
	/* The end may come a moment after the last byte */
	equal(poll(&poller, 1, 20000), 1, "poll at the end");
	holds(poller.revents & POLLHUP, "poll says %#x at the end", poller.revents);
	equal(read(fd, buffer, 1), 0, "reading at the end");
	close(fd);
}

static void would_block(void)
{
	int csd = open_csd(0), fd;
	static unsigned char buffer[1 << 20];
	int waited = 0;

	fd = start(csd, 32 << 20, 4096);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	/* Emptying the window faster than three drives fill it */
	for (int i = 0; i < 1000 && !waited; i++) {
		ssize_t got = read(fd, buffer, sizeof(buffer));

		if (got < 0) {
			expect(errno, EAGAIN, "reading what is not there yet");
			waited = 1;
		}
	}
	holds(waited, "EAGAIN is given");
	close(fd);
}

static void progress(void)
{
	int csd = open_csd(0), fd;
	static unsigned char buffer[50000];
	struct csd_pipeline_progress last, now;
	uint64_t read_so_far = 0;
	ssize_t got;

	fd = start(csd, 1 << 20, 16384);
	last = progress_of(fd);
	equal(last.bytes_total, 1 << 20, "bytes_total");
	equal(last.stage_count, 2, "stage_count");
	equal(last.chunk_bytes, 16384, "chunk_bytes");
	equal(last.stages[0].drive, 0, "drive of the first stage");
	equal(last.stages[1].drive, 2, "drive of the second stage");
	while ((got = read(fd, buffer, sizeof(buffer))) > 0) {
		read_so_far += got;
		now = progress_of(fd);
		holds(now.bytes_in >= last.bytes_in && now.bytes_out >= last.bytes_out
		      && now.messages >= last.messages && now.elapsed_ns >= last.elapsed_ns, "progress goes forward");
		holds(now.bytes_out >= read_so_far, "bytes_out %llu, of which %llu were read",
		      (unsigned long long)now.bytes_out, (unsigned long long)read_so_far);
		holds(now.bytes_in <= now.bytes_total, "bytes_in");
		/* The result cannot be further ahead than the window is wide */
		holds(now.bytes_out <= read_so_far + WINDOW, "bytes_out, with a window of 64 KiB");
		last = now;
	}
	now = progress_of(fd);
	equal(now.state, CSD_PIPELINE_DONE, "state at the end");
	equal(now.error, 0, "error at the end");
	equal(now.bytes_in, 1 << 20, "bytes_in at the end");
	equal(now.bytes_out, 1 << 20, "bytes_out at the end");
	for (int i = 0; i < 2; i++) {
		equal(now.stages[i].bytes_in, 1 << 20, "bytes into stage %d", i);
		equal(now.stages[i].bytes_out, 1 << 20, "bytes out of stage %d", i);
		equal(now.stages[i].result2, 1 << 20, "bytes that checksum %d saw", i);
	}
	equal(now.stages[0].result, now.stages[1].result, "two checksums of the same");
	close(fd);
}

static void close_cancels(void)
{
	int csd = open_csd(0), fd;
	uint64_t before[3];
	struct csd_pipeline_start begun;
	struct csd_pipeline_info info = { .size = sizeof(info) };
	char byte;

	for (int i = 0; i < 3; i++)
		before[i] = memory_of(csd, i);
	expect(try_start(csd, 64 << 20, 0, &begun), 0, "CSD_IOC_PIPELINE_START");
	fd = begun.fd;
	equal(read(fd, &byte, 1), 1, "a first byte");
	holds(memory_of(csd, 0) > before[0], "csd0 lends memory to it");
	close(fd);
	/* Nothing of it is left once close has returned, or very soon after */
	for (int wait = 0; wait < 100; wait++) {
		if (memory_of(csd, 0) == before[0] && memory_of(csd, 1) == before[1] && memory_of(csd, 2) == before[2])
			break;
		usleep(50000);
	}
	for (int i = 0; i < 3; i++)
		equal(memory_of(csd, i), before[i], "memory of csd%d in use", i);
	info.after = begun.pipeline - 1;
	expect(call(csd, CSD_IOC_PIPELINE_INFO, &info), 0, "CSD_IOC_PIPELINE_INFO");
	equal(info.progress.state, CSD_PIPELINE_CANCELLED, "its state");
}

static void one_of_two(void)
{
	int csd = open_csd(0), fd, second;
	static unsigned char buffer[4096];
	uint64_t at = 0;
	ssize_t got;

	load_noise();
	fd = start(csd, 200000, 0);
	second = dup(fd);
	close(fd);
	while ((got = read(second, buffer, sizeof(buffer))) > 0) {
		equal(memcmp(buffer, noise + at, got), 0, "%zd bytes at %llu", got, (unsigned long long)at);
		at += got;
	}
	equal(at, 200000, "bytes by the descriptor that is left");
	close(second);
}

static void no_descriptor(void)
{
	int csd = open_csd(0);
	struct csd_pipeline_start begun;
	struct rlimit old, none;
	uint64_t before = memory_of(csd, 0);

	getrlimit(RLIMIT_NOFILE, &old);
	none = (struct rlimit){ .rlim_cur = open_fds(), .rlim_max = old.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	expect(try_start(csd, 1 << 20, 0, &begun), EMFILE, "starting without a descriptor left");
	setrlimit(RLIMIT_NOFILE, &old);
	for (int wait = 0; wait < 100 && memory_of(csd, 0) != before; wait++)
		usleep(50000);
	equal(memory_of(csd, 0), before, "memory in use");
}

static void *sum_of(void *arg)
{
	unsigned char buffer[3000];
	uint64_t sum = 0;
	ssize_t got;

	while ((got = read(*(int *)arg, buffer, sizeof(buffer))) > 0)
		for (ssize_t i = 0; i < got; i++)
			sum += (1ULL << 32) + buffer[i];
	return (void *)sum;
}

static void two_readers(void)
{
	int csd = open_csd(0), fd;
	pthread_t threads[4];
	uint64_t sum = 0, want = 0, part;

	load_noise();
	fd = start(csd, 1 << 20, 8192);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, sum_of, &fd);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], (void **)&part);
		sum += part;
	}
	for (size_t i = 0; i < 1 << 20; i++)
		want += (1ULL << 32) + noise[i];
	equal(sum, want, "count and sum of the bytes that four threads read");
	close(fd);
}

static void failing(void)
{
	int csd = open_csd(0), fd;
	/* filter, format 1, delimiter ';', the predicate col(1) = "x" */
	static const char predicate[] = "col(1) = \"x\"";
	unsigned char params[16 + sizeof(predicate) - 1] = {
		1, 0, 1, 0, sizeof(params), 0, 0, 0, 1, ';', sizeof(predicate) - 1,
	};
	struct csd_stage stage = { .function = 1, .drive = 2, .params = (uintptr_t)params, .params_len = sizeof(params) };
	struct csd_pipeline_start begun = {
		/* Behind what was written to csd1 all is zero: a record without an end */
		.size = sizeof(begun), .source_drive = 1, .source_offset = 16 << 20, .source_length = 1 << 20,
		.stages = (uintptr_t)&stage, .stage_count = 1,
	};
	struct csd_pipeline_progress end;
	struct pollfd poller;
	char byte;

	memcpy(params + 16, predicate, sizeof(predicate) - 1);
	expect(call(csd, CSD_IOC_PIPELINE_START, &begun), 0, "CSD_IOC_PIPELINE_START");
	fd = begun.fd;
	poller = (struct pollfd){ .fd = fd, .events = POLLIN };
	equal(poll(&poller, 1, 20000), 1, "poll on a pipeline that fails");
	holds(poller.revents & (POLLHUP | POLLERR), "poll says %#x", poller.revents);
	for (int i = 0; i < 2; i++) {
		equal(read(fd, &byte, 1), -1ULL, "reading its result");
		expect(errno, EMSGSIZE, "reading its result");
	}
	end = progress_of(fd);
	equal(end.state, CSD_PIPELINE_FAILED, "its state");
	equal(end.error, EMSGSIZE, "its error");
	equal(end.error_drive, 2, "the drive where it failed");
	equal(end.error_stage, 0, "the stage that failed");
	equal(end.error_offset, 0, "offset of the record in the stream");
	close(fd);
}

static void forced_destruction(void)
{
	int csd = open_csd(0), fd;
	struct csd_mesh_destroy destroy = { .size = sizeof(destroy) };
	struct csd_mesh_create create = { .size = sizeof(create) };
	static unsigned char buffer[4096];
	ssize_t got;

	fd = start(csd, 64 << 20, 0);
	expect(call(csd, CSD_IOC_MESH_DESTROY, &destroy), EBUSY, "destroying a mesh in which a pipeline runs");
	destroy.flags = CSD_MESH_DESTROY_FORCE;
	expect(call(csd, CSD_IOC_MESH_DESTROY, &destroy), 0, "destroying it by force");
	while ((got = read(fd, buffer, sizeof(buffer))) > 0)
		;
	equal(got, -1ULL, "reading the result in the end");
	expect(errno, ECANCELED, "reading the result in the end");
	equal(progress_of(fd).error, ECANCELED, "its error");
	/* The descriptor outlives the mesh, and a new mesh is not touched by its end */
	expect(call(csd, CSD_IOC_MESH_CREATE, &create), 0, "a new mesh");
	close(fd);
	fd = start(csd, 10000, 0);
	equal(read(fd, buffer, 1), 1, "a pipeline in the new mesh");
	close(fd);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void interrupted(void)
{
	int csd = open_csd(0), fd, interrupts = 0;
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	static unsigned char buffer[4096];
	uint64_t at = 0;

	load_noise();
	sigaction(SIGALRM, &action, NULL);
	fd = start(csd, 500000, 4096);
	setitimer(ITIMER_REAL, &often, NULL);
	for (;;) {
		ssize_t got = read(fd, buffer, sizeof(buffer));

		if (got < 0) {
			expect(errno, EINTR, "a read that a signal ends");
			interrupts++;
			continue;
		}
		if (!got)
			break;
		equal(memcmp(buffer, noise + at, got), 0, "%zd bytes at %llu after %d signals", got,
		      (unsigned long long)at, interrupts);
		at += got;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	equal(at, 500000, "bytes in all");
	printf("%d interrupted reads\n", interrupts);
	close(fd);
}

static const struct test tests[] = {
	{ "reads of any size give the result in order, then 0", odd_reads },
	{ "poll says POLLIN when there is something to read, POLLHUP at the end", polling },
	{ "a descriptor that does not block gives EAGAIN", would_block },
	{ "progress goes forward, is never further than the window, and ends exact", progress },
	{ "closing the descriptor cancels and gives all memory back", close_cancels },
	{ "one of two descriptors of a pipeline may be closed", one_of_two },
	{ "without a descriptor left it is EMFILE and nothing is left running", no_descriptor },
	{ "four threads that read at once get each byte once", two_readers },
	{ "a pipeline that fails: POLLHUP, the same errno at each read, place and offset in the progress", failing },
	{ "a mesh destroyed by force gives ECANCELED, and the descriptor outlives it", forced_destruction },
	{ "signals interrupt reads and nothing is lost", interrupted },
};

main_of(tests)

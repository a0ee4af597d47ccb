// SPDX-License-Identifier: GPL-2.0
/*
 * Messages as uapi/csd.h describes them, where csdctl does not reach: flags,
 * full inboxes, waiting, many at once, and meshes that go away meanwhile.
 * Expects three bound drives.
 */
#include <pthread.h>
#include <signal.h>

#include "csdtest.h"

#define THREADS 8
/* Status "busy", SCT 7 (vendor specific), of the IDC specification */
#define STATUS_BUSY 0x705

static struct csd_msg_call to_drive(uint32_t mesh, uint32_t from, uint32_t to, uint32_t opcode,
				    const void *payload, uint32_t len)
{
	return (struct csd_msg_call) {
		.size = sizeof(struct csd_msg_call), .mesh = mesh, .from = from, .to = to,
		.opcode = opcode, .payload = (uintptr_t)payload, .payload_len = len,
	};
}

static int receive(int fd, uint32_t mesh, uint32_t at, uint32_t timeout_ms, struct csd_msg_recv *recv,
		   void *room, uint32_t len)
{
	*recv = (struct csd_msg_recv) {
		.size = sizeof(*recv), .mesh = mesh, .at = at, .timeout_ms = timeout_ms,
		.payload = (uintptr_t)room, .payload_len = len,
	};
	return call(fd, CSD_IOC_MSG_RECV, recv);
}

static uint32_t mesh_with(int fd, uint32_t entries, uint32_t entry_bytes)
{
	struct csd_mesh_create create = {
		.size = sizeof(create), .entries = entries, .entry_bytes = entry_bytes,
	};

	destroy_all(fd);
	expect(call(fd, CSD_IOC_MESH_CREATE, &create), 0, "creating a mesh");
	return create.mesh;
}

/* A ping of every length that fits must come back as it was */
static void echo_of(uint32_t entries, uint32_t entry_bytes, uint32_t step)
{
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, entries, entry_bytes);
	static unsigned char payload[4096], answer[4096];

	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = i * 167 + 13;
	for (uint32_t len = 0; len <= entry_bytes - 28; len += step) {
		for (int hop = 0; hop < 2; hop++) {
			struct csd_msg_call msg = to_drive(mesh, hop ? 0 : CSD_MEMBER_HOST, 1, CSD_MSG_PING,
							   payload, len);

			memset(answer, 0xa5, sizeof(answer));
			msg.response = (uintptr_t)answer;
			msg.response_len = sizeof(answer);
			expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "a ping of %u bytes", len);
			equal(msg.response_len, len, "length of its answer");
			equal(memcmp(payload, answer, len), 0, "bytes of its answer");
			equal(answer[len], 0xa5, "byte behind its answer");
			equal(msg.status, 0, "its status");
			holds(msg.rtt_ns > 0, "its round trip");
		}
	}
	destroy_all(fd);
}

static void every_length(void)
{
	echo_of(64, 64, 1);
}

static void large_entries(void)
{
	echo_of(16, 4096, 452);
}

static void least_entries(void)
{
	echo_of(4, 64, 3);
}

static void small_answer(void)
{
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 0, 0);
	char answer[16] = "################";
	struct csd_msg_call msg = to_drive(mesh, CSD_MEMBER_HOST, 0, CSD_MSG_PING, "0123456789", 10);

	msg.response = (uintptr_t)answer;
	msg.response_len = 4;
	expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "a ping with room for 4 of 10 bytes");
	equal(memcmp(answer, "0123############", 16), 0, "what is in the room and behind it");
	equal(msg.response_len, 10, "bytes of the answer that there are");
	destroy_all(fd);
}

static void in_order(void)
{
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 16, 64), room;

	/* More than the ring has entries: index and epoch go round */
	for (uint32_t i = 0; i < 200; i++) {
		struct csd_msg_call msg = to_drive(mesh, 1, 2, CSD_MSG_SEND, &i, sizeof(i));
		struct csd_msg_recv recv;

		expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "message %u", i);
		/* Up to three in the inbox at a time */
		for (uint32_t k = 2; i % 3 == 2 && k < 3; k--) {
			expect(receive(fd, mesh, 2, 5000, &recv, &room, sizeof(room)), 0, "receiving");
			equal(recv.from, 1, "the sender");
			equal(room, i - k, "the oldest message comes first");
		}
	}
	destroy_all(fd);
}

static void without_response(void)
{
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 8, 64), room;
	struct csd_msg_recv recv;

	for (uint32_t i = 0; i < 64; i++) {
		struct csd_msg_call msg = to_drive(mesh, CSD_MEMBER_HOST, 1, CSD_MSG_SEND, &i, sizeof(i));

		msg.flags = CSD_MSG_NO_RESPONSE;
		expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "message %u", i);
		expect(receive(fd, mesh, 1, 5000, &recv, &room, sizeof(room)), 0, "receiving message %u", i);
		equal(room, i, "what was received");
		equal(recv.dropped, 0, "messages lost");
	}
	destroy_all(fd);
}

static void to_the_host(void)
{
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 0, 0);
	char room[64];
	struct csd_msg_recv recv;

	for (uint32_t drive = 0; drive < 3; drive++) {
		struct csd_msg_call msg = to_drive(mesh, drive, CSD_MEMBER_HOST, CSD_MSG_SEND, "hello host", 10);

		expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "csd%u sends to the host", drive);
		expect(receive(fd, mesh, CSD_MEMBER_HOST, 5000, &recv, room, sizeof(room)), 0, "receiving");
		equal(recv.from, drive, "the sender");
		equal(recv.payload_len, 10, "its length");
		equal(memcmp(room, "hello host", 10), 0, "what it says");
		msg.opcode = CSD_MSG_PING;
		expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "csd%u pings the host", drive);
	}
	destroy_all(fd);
}

static void full_inbox(void)
{
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 0, 0), sent, room, got = 0;
	struct csd_msg_recv recv;
	uint64_t dropped = 0;

	for (sent = 0; sent < 100000; sent++) {
		struct csd_msg_call msg = to_drive(mesh, CSD_MEMBER_HOST, 1, CSD_MSG_SEND, &sent, sizeof(sent));
		int error = call(fd, CSD_IOC_MSG_CALL, &msg);

		if (!error)
			continue;
		expect(error, EIO, "a message to a full inbox");
		equal(msg.status, STATUS_BUSY, "its status");
		break;
	}
	holds(sent > 0 && sent < 100000, "an inbox is bounded");
	/* Nobody waits for an answer to these: they are lost, and counted */
	for (uint32_t i = 0; i < 5; i++) {
		struct csd_msg_call msg = to_drive(mesh, CSD_MEMBER_HOST, 1, CSD_MSG_SEND, &i, sizeof(i));

		msg.flags = CSD_MSG_NO_RESPONSE;
		expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "a message without response");
	}
	/* Pings go past the inbox, and come after all these on the same ring */
	{
		struct csd_msg_call msg = to_drive(mesh, CSD_MEMBER_HOST, 1, CSD_MSG_PING, NULL, 0);

		expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "a ping to a drive whose inbox is full");
	}
	while (!receive(fd, mesh, 1, 0, &recv, &room, sizeof(room))) {
		equal(room, got, "message in the inbox");
		dropped += recv.dropped;
		got++;
	}
	equal(got, sent, "messages that were in the inbox");
	/* The refused one may count as lost, or not: its sender was told */
	holds(dropped == 5 || dropped == 6, "messages lost: %llu", (unsigned long long)dropped);
	destroy_all(fd);
}

struct work {
	int fd;
	uint32_t mesh;
	int id;
	int rounds;
	/* Errors that may happen because the mesh goes away */
	int tolerant;
	int done;
	int error;
};

static void *pinger(void *arg)
{
	struct work *work = arg;
	unsigned char payload[36], answer[36];

	for (int i = 0; i < work->rounds; i++) {
		struct csd_msg_call msg = to_drive(work->mesh, (work->id + i) % 4 == 3 ? CSD_MEMBER_HOST :
						   (uint32_t)((work->id + i) % 4), 0, CSD_MSG_PING,
						   payload, sizeof(payload));
		int error;

		msg.to = msg.from == CSD_MEMBER_HOST ? (uint32_t)(i % 3) : (msg.from + 1) % 3;
		for (size_t k = 0; k < sizeof(payload); k++)
			payload[k] = work->id * 31 + i * 7 + k;
		msg.response = (uintptr_t)answer;
		msg.response_len = sizeof(answer);
		error = call(work->fd, CSD_IOC_MSG_CALL, &msg);
		if (error) {
			work->error = error;
			if (!work->tolerant)
				fail("thread %d, ping %d from %#x to %#x: %s", work->id, i, msg.from, msg.to,
				     errname(error));
			return NULL;
		}
		if (memcmp(payload, answer, sizeof(payload)))
			fail("thread %d, ping %d from %#x to %#x: an answer to something else", work->id, i,
			     msg.from, msg.to);
		work->done++;
	}
	return NULL;
}

static void at_once(uint32_t entries)
{
	pthread_t threads[THREADS];
	struct work work[THREADS];
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, entries, 64);

	for (int i = 0; i < THREADS; i++) {
		work[i] = (struct work){ .fd = fd, .mesh = mesh, .id = i, .rounds = 60 };
		pthread_create(&threads[i], NULL, pinger, &work[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	destroy_all(fd);
}

static void many_at_once(void)
{
	at_once(64);
}

static void many_in_small_rings(void)
{
	at_once(4);
}

static void *receiver(void *arg)
{
	struct work *work = arg;
	struct csd_msg_recv recv;
	char room[64];

	work->error = receive(work->fd, work->mesh, work->id, 0xffffffff, &recv, room, sizeof(room));
	return NULL;
}

static void destroyed_meanwhile(void)
{
	pthread_t threads[THREADS];
	struct work work[THREADS];
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 8, 64);
	struct csd_mesh_destroy destroy = { .size = sizeof(destroy), .mesh = mesh };

	for (int i = 0; i < THREADS; i++) {
		work[i] = (struct work){ .fd = fd, .mesh = mesh, .id = i, .rounds = 1 << 30, .tolerant = 1 };
		pthread_create(&threads[i], NULL, pinger, &work[i]);
	}
	usleep(300000);
	expect(call(fd, CSD_IOC_MESH_DESTROY, &destroy), 0, "destroying the mesh under them");
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		holds(work[i].done > 0, "thread %d had answers before", i);
		/* ECANCELED: it was in flight; ENXIO: the next one found no mesh */
		holds(work[i].error == ECANCELED || work[i].error == ENXIO, "thread %d ended with %s", i,
		      errname(work[i].error));
	}
	equal(info_of(fd).meshes, 0, "meshes left");
}

static void receiver_cancelled(void)
{
	pthread_t threads[2];
	struct work work[2];
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 0, 0);
	struct csd_mesh_destroy destroy = { .size = sizeof(destroy), .mesh = mesh };

	for (int i = 0; i < 2; i++) {
		work[i] = (struct work){ .fd = fd, .mesh = mesh, .id = i ? 1 : (int)CSD_MEMBER_HOST };
		pthread_create(&threads[i], NULL, receiver, &work[i]);
	}
	usleep(200000);
	expect(call(fd, CSD_IOC_MESH_DESTROY, &destroy), 0, "destroying the mesh");
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		expect(work[i].error, ECANCELED, "what the receiver at %#x ended with", work[i].id);
	}
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void interrupted(void)
{
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 0, 0);
	struct csd_msg_recv recv;
	struct sigaction action = { .sa_handler = on_alarm };
	char room[64];

	sigaction(SIGALRM, &action, NULL);
	alarm(1);
	expect(receive(fd, mesh, 0, 0xffffffff, &recv, room, sizeof(room)), EINTR, "receiving until a signal");
	destroy_all(fd);
}

static void counted(void)
{
	int fd = open_csd(0);
	uint32_t mesh = mesh_with(fd, 16, 64);
	struct csd_ring_info there = { .size = sizeof(there), .mesh = mesh, .from = 0, .to = 1 };
	struct csd_ring_info back = { .size = sizeof(back), .mesh = mesh, .from = 1, .to = 0 };

	for (int i = 0; i < 40; i++) {
		struct csd_msg_call msg = to_drive(mesh, 0, 1, CSD_MSG_PING, "x", 1);

		expect(call(fd, CSD_IOC_MSG_CALL, &msg), 0, "ping %d", i);
	}
	expect(call(fd, CSD_IOC_RING_INFO, &there), 0, "RING_INFO");
	expect(call(fd, CSD_IOC_RING_INFO, &back), 0, "RING_INFO");
	equal(there.where, 1, "the ring lives in its receiver");
	equal(back.where, 0, "the ring back lives in its receiver");
	equal(there.messages, 40, "requests received");
	equal(back.messages, 40, "responses received");
	equal(there.message_bytes, 40 * 64, "their bytes");
	equal(there.tail, 40, "tail");
	equal(there.head, 40, "head");
	/* One credit write for every quarter of 16 entries at most */
	holds(there.credit_writes >= 1 && there.credit_writes <= 10, "credit writes: %llu",
	      (unsigned long long)there.credit_writes);
	equal(there.faults + there.stale + back.faults + back.stale, 0, "faults and stale entries");
	holds(there.epoch != 0, "epoch");
	destroy_all(fd);
}

static void epochs(void)
{
	int fd = open_csd(0);
	uint32_t last = 0;

	for (int i = 0; i < 5; i++) {
		struct csd_ring_info ring = { .size = sizeof(ring), .mesh = mesh_with(fd, 0, 0), .from = 0, .to = 1 };

		expect(call(fd, CSD_IOC_RING_INFO, &ring), 0, "RING_INFO");
		holds(ring.epoch > last, "epoch %u after %u", ring.epoch, last);
		last = ring.epoch;
	}
	destroy_all(fd);
}

static const struct test tests[] = {
	{ "a ping of every length that fits comes back as it was, from the host and from a drive", every_length },
	{ "entries of 4,096 bytes carry up to 4,068", large_entries },
	{ "rings of 4 entries, the least, work", least_entries },
	{ "an answer longer than its room is cut, and its length told", small_answer },
	{ "messages come in order while the ring goes round", in_order },
	{ "messages without response arrive", without_response },
	{ "each drive can send to the host and ping it", to_the_host },
	{ "a full inbox refuses with status busy, counts what nobody waited for, and keeps the rest", full_inbox },
	{ "eight threads ping at once and each gets its own answers", many_at_once },
	{ "eight threads share rings of 4 entries without deadlock", many_in_small_rings },
	{ "destroying a mesh with messages in flight completes them with ECANCELED", destroyed_meanwhile },
	{ "destroying a mesh ends waiting receivers with ECANCELED", receiver_cancelled },
	{ "a signal ends a waiting receiver with EINTR", interrupted },
	{ "rings count messages, bytes and credits exactly", counted },
	{ "no epoch is used twice", epochs },
};

main_of(tests)

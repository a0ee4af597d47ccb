// SPDX-License-Identifier: GPL-2.0
/*
 * The values of calls on drives, meshes and messages, beyond what uapi/csd.h
 * allows.  Written from the header alone.  Expects five bound drives with a PMR
 * each.
 */
#include "abi.h"

static void unknown_drives(void)
{
	static const uint32_t numbers[] = { 5, NOT_THERE, 64, 65, 0x80000000, CSD_DRIVE_ANY, CSD_MEMBER_HOST };
	int fd = open_csd(0);

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct csd_drive_info drive = { .size = sizeof(drive), .drive = numbers[i] };
		struct csd_drive_set set = { .size = sizeof(set), .drive = numbers[i] };
		struct csd_drive_namespace ns = { .size = sizeof(ns), .drive = numbers[i] };
		struct csd_drive_probe_memory probe = {
			.size = sizeof(probe), .drive = numbers[i], .memory = CSD_MEMORY_PMR, .bytes = 4096,
		};

		expect(call(fd, CSD_IOC_DRIVE_INFO, &drive), ENXIO, "DRIVE_INFO of %#x", numbers[i]);
		expect(call(fd, CSD_IOC_DRIVE_SET, &set), ENXIO, "DRIVE_SET of %#x", numbers[i]);
		expect(call(fd, CSD_IOC_DRIVE_NAMESPACE, &ns), ENXIO, "DRIVE_NAMESPACE of %#x", numbers[i]);
		expect(call(fd, CSD_IOC_DRIVE_PROBE_MEMORY, &probe), ENXIO, "DRIVE_PROBE_MEMORY of %#x",
		       numbers[i]);
	}
}

static void drive_values(void)
{
	int fd = open_csd(0);
	struct csd_drive_set set = { .size = sizeof(set), .flags = 2 };
	struct csd_drive_namespace ns = { .size = sizeof(ns), .index = CSD_MAX_NAMESPACES };
	struct csd_drive_probe_memory probe = { .size = sizeof(probe), .bytes = 4096 };

	expect(call(fd, CSD_IOC_DRIVE_SET, &set), EOPNOTSUPP, "an unknown flag");
	set.flags = 0x80000001;
	expect(call(fd, CSD_IOC_DRIVE_SET, &set), EOPNOTSUPP, "a known and an unknown flag");
	expect(call(fd, CSD_IOC_DRIVE_NAMESPACE, &ns), ENXIO, "namespace index %u", ns.index);
	ns.index = 1;
	expect(call(fd, CSD_IOC_DRIVE_NAMESPACE, &ns), ENXIO, "the second of one namespace");
	expect(call(fd, CSD_IOC_DRIVE_PROBE_MEMORY, &probe), EINVAL, "no memory to probe");
	probe.memory = 1 << 30;
	expect(call(fd, CSD_IOC_DRIVE_PROBE_MEMORY, &probe), EOPNOTSUPP, "an unknown memory");
	for (int kind = 0; kind < 2; kind++) {
		probe.memory = kind ? CSD_MEMORY_CMB : CSD_MEMORY_PMR;
		probe.bytes = 4095;
		expect(call(fd, CSD_IOC_DRIVE_PROBE_MEMORY, &probe), EINVAL, "probing 4095 bytes");
		probe.bytes = (1 << 20) + 1;
		expect(call(fd, CSD_IOC_DRIVE_PROBE_MEMORY, &probe), EINVAL, "probing more than 1 MiB");
		probe.bytes = 1ULL << 60;
		expect(call(fd, CSD_IOC_DRIVE_PROBE_MEMORY, &probe), EINVAL, "probing 2^60 bytes");
		probe.bytes = 4096;
		expect(call(fd, CSD_IOC_DRIVE_PROBE_MEMORY, &probe), 0, "probing 4096 bytes");
		holds(probe.read_ns > 0 && probe.write_ns > 0, "times of probing");
	}
}

static void set_in_mesh(void)
{
	int fd = open_csd(0);
	struct csd_drive_set set = { .size = sizeof(set), .flags = CSD_DRIVE_SET_USE_PMR };

	whole_mesh(fd);
	expect(call(fd, CSD_IOC_DRIVE_SET, &set), EBUSY, "DRIVE_SET of a member");
	destroy_all(fd);
	expect(call(fd, CSD_IOC_DRIVE_SET, &set), 0, "DRIVE_SET afterwards");
}

static void mesh_values(void)
{
	static const uint32_t entries[] = { 1, 2, 3, 5, 63, 65, 4095, 8192, 0x80000000, 0xffffffff };
	static const uint32_t bytes[] = { 1, 4, 32, 63, 65, 96, 4095, 8192, 0x80000000, 0xffffffff };
	int fd = open_csd(0);

	destroy_all(fd);
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		struct csd_mesh_create create = { .entries = entries[i] };

		expect(create_with(fd, &create), EINVAL, "%u entries", entries[i]);
	}
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		struct csd_mesh_create create = { .entry_bytes = bytes[i] };

		expect(create_with(fd, &create), EINVAL, "entries of %u bytes", bytes[i]);
	}
	for (uint32_t bit = 0; bit < 32; bit++) {
		struct csd_mesh_create create = { .flags = 1U << bit };

		expect(create_with(fd, &create), EOPNOTSUPP, "flag %#x", create.flags);
	}
	expect(create_with(fd, &(struct csd_mesh_create){ .placement = 200 }), EOPNOTSUPP, "placement 200");
	expect(create_with(fd, &(struct csd_mesh_create){ .publish = 200 }), EOPNOTSUPP, "publish 200");
	expect(create_with(fd, &(struct csd_mesh_create){ .memory = 3 }), EOPNOTSUPP, "memory 3");
	expect(create_with(fd, &(struct csd_mesh_create){ .drives = 1ULL << NOT_THERE }), ENXIO, "drive 63");
	expect(create_with(fd, &(struct csd_mesh_create){ .drives = 0x21 }), ENXIO, "csd0 and csd5");
	equal(info_of(fd).meshes, 0, "meshes after all these refusals");
}

static void mesh_too_large(void)
{
	int fd = open_csd(0);
	struct csd_mesh_create create = { .entries = 4096, .entry_bytes = 4096 };
	struct csd_drive_info before = { .size = sizeof(before) }, after = { .size = sizeof(after) };

	/* 5 rings of 16 MiB in each receiver's 64 MiB */
	destroy_all(fd);
	expect(call(fd, CSD_IOC_DRIVE_INFO, &before), 0, "DRIVE_INFO");
	expect(create_with(fd, &create), ENOSPC, "rings of 80 MiB in 64 MiB");
	expect(call(fd, CSD_IOC_DRIVE_INFO, &after), 0, "DRIVE_INFO");
	equal(after.memory_used, before.memory_used, "memory in use after the refusal");
	equal(after.mesh, CSD_MESH_NONE, "mesh of csd0 after the refusal");
}

static void mesh_busy(void)
{
	int fd = open_csd(0);
	struct csd_mesh_create first = { .drives = 0x6 }, second = { .drives = 0x19 | 0x4 }, none = { 0 };

	destroy_all(fd);
	expect(create_with(fd, &first), 0, "a mesh of csd1 and csd2");
	expect(create_with(fd, &second), EBUSY, "a mesh of csd0, csd2, csd3, csd4");
	equal(second.busy_drive, 2, "busy_drive");
	second.drives = 0x19;
	expect(create_with(fd, &second), 0, "a mesh of csd0, csd3, csd4");
	holds(second.mesh != first.mesh, "numbers of two meshes");
	/* All bound drives that are in no mesh: there is none */
	expect(create_with(fd, &none), ENODEV, "a mesh of the drives in no mesh, of which there is none");
	destroy_all(fd);
}

static void unknown_meshes(void)
{
	static const uint32_t numbers[] = { 0, NOT_THERE, 64, 0x80000000, 0xfffffffe, CSD_MESH_NONE };
	int fd = open_csd(0);

	destroy_all(fd);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint32_t mesh = numbers[i];
		struct csd_mesh_destroy destroy = { .size = sizeof(destroy), .mesh = mesh };
		struct csd_mesh_info info = { .size = sizeof(info), .mesh = mesh };
		struct csd_ring_info ring = { .size = sizeof(ring), .mesh = mesh, .from = CSD_MEMBER_HOST };
		struct csd_msg_call msg = { .size = sizeof(msg) };
		struct csd_msg_recv recv = { .size = sizeof(recv), .mesh = mesh, .at = CSD_MEMBER_HOST };
		struct csd_pipeline_start start = { .size = sizeof(start) };

		fill_call(&msg, mesh);
		fill_pipeline(&start, mesh);
		expect(call(fd, CSD_IOC_MESH_DESTROY, &destroy), ENXIO, "MESH_DESTROY of %#x", mesh);
		expect(call(fd, CSD_IOC_MESH_INFO, &info), ENXIO, "MESH_INFO of %#x", mesh);
		expect(call(fd, CSD_IOC_RING_INFO, &ring), ENXIO, "RING_INFO of %#x", mesh);
		expect(call(fd, CSD_IOC_MSG_CALL, &msg), ENXIO, "MSG_CALL in %#x", mesh);
		expect(call(fd, CSD_IOC_MSG_RECV, &recv), ENXIO, "MSG_RECV in %#x", mesh);
		expect(call(fd, CSD_IOC_PIPELINE_PLAN, &start), ENXIO, "PIPELINE_PLAN in %#x", mesh);
		expect(call(fd, CSD_IOC_PIPELINE_START, &start), ENXIO, "PIPELINE_START in %#x", mesh);
	}
}

static void destroy_flags(void)
{
	int fd = open_csd(0);
	struct csd_mesh_destroy destroy = { .size = sizeof(destroy), .mesh = whole_mesh(fd), .flags = 2 };

	expect(call(fd, CSD_IOC_MESH_DESTROY, &destroy), EOPNOTSUPP, "an unknown flag");
	equal(info_of(fd).meshes, 1ULL << destroy.mesh, "meshes afterwards");
	destroy_all(fd);
}

static void members_array(void)
{
	int fd = open_csd(0);
	struct csd_mesh_member members[8];
	struct csd_mesh_info info = { .size = sizeof(info), .mesh = whole_mesh(fd) };
	long page = sysconf(_SC_PAGESIZE);
	unsigned char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t seen = 0;

	expect(call(fd, CSD_IOC_MESH_INFO, &info), 0, "without an array");
	equal(info.member_count, 6, "members, the host included");

	memset(members, 0xa5, sizeof(members));
	info.members = (uintptr_t)members;
	info.member_count = 2;
	expect(call(fd, CSD_IOC_MESH_INFO, &info), 0, "with room for 2");
	equal(info.member_count, 6, "members that there are");
	equal(members[2].drive, 0xa5a5a5a5, "what is behind the room");

	memset(members, 0xa5, sizeof(members));
	info.member_count = 8;
	expect(call(fd, CSD_IOC_MESH_INFO, &info), 0, "with room for 8");
	equal(info.member_count, 6, "members that there are");
	equal(members[6].drive, 0xa5a5a5a5, "what is behind them");
	for (int i = 0; i < 6; i++) {
		equal(members[i].state, CSD_MEMBER_ATTACHED, "state of member %d", i);
		if (members[i].drive == CSD_MEMBER_HOST) {
			equal(members[i].member, 0, "the host's member id");
			seen |= 1U << 31;
			continue;
		}
		holds(members[i].drive < 5, "drive number");
		equal(members[i].memory, CSD_MEMORY_PMR, "memory of csd%u", members[i].drive);
		seen |= 1U << members[i].drive;
	}
	equal(seen, 0x8000001f, "who is in the array");

	/* Room that only the caller's word says there is */
	mprotect(map + page, page, PROT_NONE);
	info.members = (uintptr_t)(map + page - sizeof(members[0]));
	info.member_count = 0xffffffff;
	expect(call(fd, CSD_IOC_MESH_INFO, &info), EFAULT, "an array that ends too early");
	info.members = 8;
	info.member_count = 6;
	expect(call(fd, CSD_IOC_MESH_INFO, &info), EFAULT, "an array at 8");
	destroy_all(fd);
}

static void rings_not_there(void)
{
	int fd = open_csd(0);
	uint32_t mesh = whole_mesh(fd);
	static const uint32_t pairs[][2] = {
		{ 0, 0 }, { CSD_MEMBER_HOST, CSD_MEMBER_HOST }, { 0, 5 }, { NOT_THERE, 1 },
		{ 0, CSD_DRIVE_ANY }, { 64, 0 },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct csd_ring_info ring = {
			.size = sizeof(ring), .mesh = mesh, .from = pairs[i][0], .to = pairs[i][1],
		};

		expect(call(fd, CSD_IOC_RING_INFO, &ring), ENXIO, "ring from %#x to %#x", ring.from, ring.to);
	}
	destroy_all(fd);
}

static void message_values(void)
{
	int fd = open_csd(0);
	uint32_t mesh = whole_mesh(fd);
	char payload[64] = "";
	struct csd_msg_call good = {
		.mesh = mesh, .from = CSD_MEMBER_HOST, .to = 1, .opcode = CSD_MSG_PING,
		.payload = (uintptr_t)payload, .payload_len = 36,
	}, msg;

	msg = good;
	expect(send_with(fd, &msg), 0, "a ping of 36 bytes");
	for (uint32_t len = 37; len < 40; len++) {
		msg = good;
		msg.payload_len = len;
		expect(send_with(fd, &msg), EMSGSIZE, "a ping of %u bytes", len);
	}
	msg = good;
	msg.payload_len = 0xffffffff;
	expect(send_with(fd, &msg), EMSGSIZE, "a ping of 2^32 - 1 bytes");
	for (uint32_t opcode = 0; opcode < 300; opcode++) {
		msg = good;
		msg.opcode = opcode;
		if (opcode != CSD_MSG_PING && opcode != CSD_MSG_SEND)
			expect(send_with(fd, &msg), EOPNOTSUPP, "opcode %#x", opcode);
	}
	msg = good;
	msg.flags = 2;
	expect(send_with(fd, &msg), EOPNOTSUPP, "flag 2");
	msg = good;
	msg.flags = 0x80000001;
	expect(send_with(fd, &msg), EOPNOTSUPP, "flags 0x80000001");
	msg = good;
	msg.payload = 0;
	expect(send_with(fd, &msg), EFAULT, "36 bytes at 0");
	msg = good;
	msg.payload = 0xffff888000000000;
	expect(send_with(fd, &msg), EFAULT, "36 bytes at a kernel address");
	msg = good;
	msg.payload_len = 0;
	msg.payload = 0x10;
	expect(send_with(fd, &msg), 0, "0 bytes at 0x10");
	msg = good;
	msg.response = 0x10;
	msg.response_len = 36;
	expect(send_with(fd, &msg), EFAULT, "an answer to 0x10");
	msg = good;
	msg.to = NOT_THERE;
	expect(send_with(fd, &msg), ENXIO, "to csd63");
	msg = good;
	msg.from = NOT_THERE;
	expect(send_with(fd, &msg), ENXIO, "from csd63");
	msg = good;
	msg.to = CSD_DRIVE_ANY;
	expect(send_with(fd, &msg), ENXIO, "to any drive");
	msg = good;
	msg.to = CSD_MEMBER_HOST;
	expect(send_with(fd, &msg), EINVAL, "from the host to itself");
	msg = good;
	msg.from = 1;
	expect(send_with(fd, &msg), EINVAL, "from csd1 to itself");
	/* Nothing of all that has broken it */
	msg = good;
	expect(send_with(fd, &msg), 0, "a ping afterwards");
	destroy_all(fd);
}

static void message_to_outsider(void)
{
	int fd = open_csd(0);
	struct csd_mesh_create create = { .drives = 0x3 };
	struct csd_msg_call msg = { .from = CSD_MEMBER_HOST, .to = 2, .opcode = CSD_MSG_PING };
	struct csd_msg_recv recv = { .size = sizeof(recv), .at = 2 };

	destroy_all(fd);
	expect(create_with(fd, &create), 0, "a mesh of csd0 and csd1");
	msg.mesh = create.mesh;
	recv.mesh = create.mesh;
	expect(send_with(fd, &msg), ENXIO, "a ping to csd2, which is in no mesh");
	expect(call(fd, CSD_IOC_MSG_RECV, &recv), ENXIO, "receiving at csd2");
	destroy_all(fd);
}

static void receiving(void)
{
	int fd = open_csd(0);
	uint32_t mesh = whole_mesh(fd);
	char room[64] = "";
	struct csd_msg_recv recv = { .size = sizeof(recv), .mesh = mesh, .at = 1 };
	struct csd_msg_call msg = {
		.mesh = mesh, .from = CSD_MEMBER_HOST, .to = 1, .opcode = CSD_MSG_SEND,
		.payload = (uintptr_t)"seven b", .payload_len = 7,
	};
	int64_t begun;

	recv.payload = (uintptr_t)room;
	recv.payload_len = sizeof(room);
	expect(call(fd, CSD_IOC_MSG_RECV, &recv), EAGAIN, "an empty inbox, not waiting");
	recv.timeout_ms = 50;
	begun = now_ns();
	expect(call(fd, CSD_IOC_MSG_RECV, &recv), ETIMEDOUT, "an empty inbox, waiting for 50 ms");
	holds(now_ns() - begun >= 50000000, "50 ms are over");

	expect(send_with(fd, &msg), 0, "sending 7 bytes to csd1");
	recv.timeout_ms = 1000;
	recv.payload_len = 6;
	expect(call(fd, CSD_IOC_MSG_RECV, &recv), EMSGSIZE, "room for 6 of 7 bytes");
	recv.payload_len = 7;
	recv.payload = 0x10;
	expect(call(fd, CSD_IOC_MSG_RECV, &recv), EFAULT, "room at 0x10");
	recv.payload_len = 7;
	recv.payload = (uintptr_t)room;
	expect(call(fd, CSD_IOC_MSG_RECV, &recv), 0, "room for 7 bytes: the message stayed");
	equal(recv.payload_len, 7, "bytes received");
	equal(memcmp(room, "seven b", 8), 0, "what was received");
	equal(recv.from, CSD_MEMBER_HOST, "the sender");
	equal(recv.dropped, 0, "messages lost");
	recv.at = NOT_THERE;
	expect(call(fd, CSD_IOC_MSG_RECV, &recv), ENXIO, "receiving at csd63");
	destroy_all(fd);
}

static const struct test tests[] = {
	{ "drives that do not exist are ENXIO, for each call on drives", unknown_drives },
	{ "values of calls on drives are held to their ranges", drive_values },
	{ "consent to use the PMR of a mesh's member is EBUSY", set_in_mesh },
	{ "values of mesh creation are held to their ranges and refusals leave nothing", mesh_values },
	{ "a mesh too large for its drives is ENOSPC and leaves nothing", mesh_too_large },
	{ "a drive in another mesh is EBUSY and named in busy_drive", mesh_busy },
	{ "meshes that do not exist are ENXIO, for each call on meshes", unknown_meshes },
	{ "an unknown flag of mesh destruction is EOPNOTSUPP and destroys nothing", destroy_flags },
	{ "the array of members is filled as far as there is room, and no further", members_array },
	{ "rings that do not exist are ENXIO", rings_not_there },
	{ "values of messages are held to their ranges and the mesh works on", message_values },
	{ "a drive outside of the mesh is ENXIO for messages", message_to_outsider },
	{ "receiving: EAGAIN, ETIMEDOUT, and EMSGSIZE, after which the message is still there", receiving },
};

main_of(tests)

// SPDX-License-Identifier: GPL-2.0
/*
 * What uapi/csd.h promises of all calls: sizes, tails, pointers, reserved members,
 * unknown commands; and of the device node.  Written from the header alone.
 * Expects five bound drives with a PMR each.
 */
#include <grp.h>

#include "abi.h"

static unsigned char big[65536] __attribute__((aligned(4096)));

static void each(void (*check)(int fd, const struct ioctl_shape *shape, uint32_t mesh))
{
	static const struct ioctl_shape progress = {
		"CSD_IOC_PIPELINE_PROGRESS", CSD_IOC_PIPELINE_PROGRESS,
		sizeof(struct csd_pipeline_progress), 0, { 0 }, fill_first,
	};
	int fd = open_csd(0);
	uint32_t mesh = whole_mesh(fd);
	int pipeline = start_pipeline(fd, mesh, 4096);

	for (size_t i = 0; i < SHAPES; i++)
		check(fd, &shapes[i], mesh);
	check(pipeline, &progress, mesh);
	close(pipeline);
	destroy_all(fd);
}

static void make(const struct ioctl_shape *shape, uint32_t mesh, uint32_t size)
{
	memset(big, 0, sizeof(big));
	if (shape->fill)
		shape->fill(big, mesh);
	memcpy(big, &size, sizeof(size));
}

static void check_small(int fd, const struct ioctl_shape *shape, uint32_t mesh)
{
	uint32_t first = shape->first ? shape->first : shape->size;
	uint32_t sizes[] = { 0, 1, 4, first - 8, first - 1 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		make(shape, mesh, sizes[i]);
		expect(call(fd, shape->request, big), EINVAL, "%s of %u bytes", shape->name, sizes[i]);
	}
}

static void check_grown(int fd, const struct ioctl_shape *shape, uint32_t mesh)
{
	if (!shape->first || !shape->fill)
		return;
	for (size_t size = shape->first; size < shape->size; size += 4) {
		make(shape, mesh, size);
		memset(big + size, 0xa5, shape->size - size);
		expect(call(fd, shape->request, big), 0, "%s of %zu bytes, as an older caller knows it",
		       shape->name, size);
		equal(big[size], 0xa5, "%s: byte behind what an older caller knows", shape->name);
	}
}

static void older_sizes(void)
{
	each(check_grown);
}

static void small_sizes(void)
{
	each(check_small);
}

static void check_tail(int fd, const struct ioctl_shape *shape, uint32_t mesh)
{
	/* Right behind, in the middle, and the last byte of what the caller says there is */
	size_t sizes[] = { shape->size + 8, shape->size + 64, 4096 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i] <= shape->size)
			continue;
		make(shape, mesh, sizes[i]);
		big[shape->size] = 1;
		expect(call(fd, shape->request, big), E2BIG, "%s of %zu bytes, the first too many not zero",
		       shape->name, sizes[i]);
		make(shape, mesh, sizes[i]);
		big[sizes[i] - 1] = 0x80;
		expect(call(fd, shape->request, big), E2BIG, "%s of %zu bytes, the last not zero",
		       shape->name, sizes[i]);
	}
}

static void nonzero_tail(void)
{
	each(check_tail);
}

static void check_zero_tail(int fd, const struct ioctl_shape *shape, uint32_t mesh)
{
	size_t sizes[] = { shape->size + 8, shape->size + 1, 4096 };
	int plain;

	make(shape, mesh, shape->size);
	plain = call(fd, shape->request, big);
	if (shape->fill)
		expect(plain, 0, "%s of its own size", shape->name);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i] <= shape->size)
			continue;
		make(shape, mesh, sizes[i]);
		/* Behind what the caller says there is: must not even be looked at */
		memset(big + sizes[i], 0xa5, 64);
		if (shape->fill) {
			expect(call(fd, shape->request, big), 0, "%s of %zu bytes with a tail of zeroes",
			       shape->name, sizes[i]);
			for (size_t k = shape->size; k < sizes[i]; k++)
				equal(big[k], 0, "%s: byte %zu of the tail", shape->name, k);
		} else {
			int error = call(fd, shape->request, big);

			holds(error != E2BIG && error != EFAULT, "%s of %zu bytes with a tail of zeroes: %s",
			      shape->name, sizes[i], errname(error));
			destroy_all(fd);
			if (shape->request == CSD_IOC_MESH_CREATE)
				continue;
			whole_mesh(fd);
		}
		equal(big[sizes[i]], 0xa5, "%s: byte behind the tail", shape->name);
	}
}

static void zero_tail(void)
{
	/* Each on a mesh of its own: some of them take it down */
	int fd = open_csd(0);

	for (size_t i = 0; i < SHAPES; i++)
		check_zero_tail(fd, &shapes[i], whole_mesh(fd));
	destroy_all(fd);
}

static void check_huge(int fd, const struct ioctl_shape *shape, uint32_t mesh)
{
	uint32_t sizes[] = { 0x10000, 0x7fffffff, 0x80000000, 0xffffffff };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int error;

		make(shape, mesh, sizes[i]);
		big[sizeof(big) - 1] = 1;
		error = call(fd, shape->request, big);
		/* Behind `big` there may be anything, or nothing */
		holds(error == E2BIG || error == EFAULT, "%s of %#x bytes: %s", shape->name, sizes[i],
		      errname(error));
	}
}

static void huge_sizes(void)
{
	each(check_huge);
}

static void check_pointers(int fd, const struct ioctl_shape *shape, uint32_t mesh)
{
	long page = sysconf(_SC_PAGESIZE);
	unsigned char *map = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *cut;

	mprotect(map + 2 * page, 2 * page, PROT_NONE);
	expect(call(fd, shape->request, NULL), EFAULT, "%s at NULL", shape->name);
	expect(call(fd, shape->request, (void *)-4096UL), EFAULT, "%s at -4096", shape->name);
	expect(call(fd, shape->request, (void *)0xffff888000000000UL), EFAULT, "%s at a kernel address",
	       shape->name);
	expect(call(fd, shape->request, map + 2 * page), EFAULT, "%s in a page that is not to be read",
	       shape->name);
	/* All but the last 4 bytes are there */
	cut = map + 2 * page - shape->size + 4;
	make(shape, mesh, shape->size);
	memcpy(cut, big, shape->size - 4);
	expect(call(fd, shape->request, cut), EFAULT, "%s that ends in a page that is not to be read",
	       shape->name);
	munmap(map, 4 * page);
}

static void bad_pointers(void)
{
	each(check_pointers);
}

static void check_readonly(int fd, const struct ioctl_shape *shape, uint32_t mesh)
{
	unsigned char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!shape->fill)
		return;
	make(shape, mesh, shape->size);
	memcpy(map, big, shape->size);
	mprotect(map, 4096, PROT_READ);
	expect(call(fd, shape->request, map), EFAULT, "%s whose answer cannot be written", shape->name);
	munmap(map, 4096);
}

static void readonly_answers(void)
{
	each(check_readonly);
}

static void unwritable_create(void)
{
	int fd = open_csd(0);
	struct csd_mesh_create *create = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	destroy_all(fd);
	create->size = sizeof(*create);
	mprotect(create, 4096, PROT_READ);
	expect(call(fd, CSD_IOC_MESH_CREATE, create), EFAULT, "a mesh whose number cannot be told");
	equal(info_of(fd).meshes, 0, "meshes left over");
}

static void unwritable_start(void)
{
	int fd = open_csd(0), before;
	struct csd_pipeline_start *start = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	fill_pipeline(start, whole_mesh(fd));
	start->size = sizeof(*start);
	mprotect(start, 4096, PROT_READ);
	before = open_fds();
	expect(call(fd, CSD_IOC_PIPELINE_START, start), EFAULT, "a pipeline whose descriptor cannot be told");
	equal(open_fds(), before, "open descriptors");
	destroy_all(fd);
}

static void check_reserved(int fd, const struct ioctl_shape *shape, uint32_t mesh)
{
	for (size_t i = 0; i < 4 && shape->reserved[i]; i++) {
		make(shape, mesh, shape->size);
		big[shape->reserved[i] + 3] = 0x80;
		expect(call(fd, shape->request, big), EOPNOTSUPP, "%s with its reserved member at %zu set",
		       shape->name, shape->reserved[i]);
	}
}

static void reserved_members(void)
{
	each(check_reserved);
}

static void unknown_commands(void)
{
	int fd = open_csd(0);
	int pipeline = start_pipeline(fd, whole_mesh(fd), 4096);

	memset(big, 0, sizeof(big));
	for (unsigned int nr = 0; nr < 256; nr++) {
		int known = nr == (CSD_IOC_PIPELINE_PROGRESS & 0xff);

		for (size_t i = 0; i < SHAPES; i++)
			known |= nr == (shapes[i].request & 0xff);
		if (!known)
			expect(call(fd, _IO(CSD_IOC_TYPE, nr), big), ENOTTY, "command %#x", nr);
		if (nr != (CSD_IOC_PIPELINE_PROGRESS & 0xff))
			expect(call(pipeline, _IO(CSD_IOC_TYPE, nr), big), ENOTTY,
			       "command %#x on a pipeline's descriptor", nr);
	}
	expect(call(fd, CSD_IOC_PIPELINE_PROGRESS, big), ENOTTY, "CSD_IOC_PIPELINE_PROGRESS on /dev/csd");
	expect(call(fd, _IO('c', 0), big), ENOTTY, "another type");
	expect(call(fd, _IOWR(CSD_IOC_TYPE, 0, struct csd_info), big), ENOTTY, "another direction and size");
	close(pipeline);
	destroy_all(fd);
}

static void other_calls(void)
{
	int fd = open_csd(O_NONBLOCK), pipeline;
	char buffer[256] = "";
	/* Not known to the compiler, which would refuse it */
	void *volatile nowhere = (void *)0x10;

	/* The events that earlier tests made were before this descriptor */
	equal(read(fd, buffer, sizeof(struct csd_event) - 1), -1ULL, "reading less than an event");
	expect(errno, EINVAL, "reading less than an event");
	equal(read(fd, buffer, 0), -1ULL, "reading nothing");
	expect(errno, EINVAL, "reading nothing");
	equal(read(fd, buffer, sizeof(buffer)), -1ULL, "reading with no event there");
	expect(errno, EAGAIN, "reading with no event there");
	holds(write(fd, buffer, 8) < 0, "writing is refused");
	holds(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, "mapping is refused");
	holds(lseek(fd, 1, SEEK_SET) < 0, "seeking is refused");

	whole_mesh(fd);
	equal(read(fd, nowhere, sizeof(struct csd_event)), -1ULL, "reading an event to 0x10");
	expect(errno, EFAULT, "reading an event to 0x10");
	holds(read(fd, buffer, sizeof(struct csd_event)) == sizeof(struct csd_event),
	      "the event that could not be given is still there");
	equal(((struct csd_event *)buffer)->type, CSD_EVENT_MESH_CREATED, "its type");
	pipeline = start_pipeline(fd, 0, 4096);
	holds(write(pipeline, buffer, 8) < 0, "writing to a pipeline is refused");
	holds(mmap(NULL, 4096, PROT_READ, MAP_SHARED, pipeline, 0) == MAP_FAILED, "mapping one is refused");
	close(pipeline);
	destroy_all(fd);
}

static void node_mode(void)
{
	static const int modes[] = { O_RDONLY, O_WRONLY, O_RDWR };

	/* nobody, in no group */
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		fail("cannot become nobody: %s", errname(errno));
	for (int i = 0; i < 3; i++) {
		errno = 0;
		holds(open("/dev/csd", modes[i]) < 0, "nobody opens /dev/csd");
		expect(errno, EACCES, "nobody opens /dev/csd");
	}
}

/*
 * Requests of random bytes, of the right and the wrong size: every one ends, and
 * the mesh still answers.  The generator is xorshift64 with a fixed seed.
 */
static void random_requests(void)
{
	int fd = open_csd(0);
	uint32_t mesh = whole_mesh(fd);
	struct csd_msg_call msg;
	uint64_t state = 0x9e3779b97f4a7c15;

	for (int round = 0; round < 6000; round++) {
		const struct ioctl_shape *shape;
		uint32_t size;
		int before = open_fds();

		memset(big, 0, 4096);
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		shape = &shapes[state % SHAPES];
		if (shape->fill)
			shape->fill(big, mesh);
		/* A few members of a request that was good, or all of one */
		for (uint64_t i = 0, n = state >> 8 & 7; i <= n; i++) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			memcpy(big + (state % shape->size & ~3ULL), (char *)&state + 2, 4);
		}
		size = state & 0xf00 ? shape->size : state >> 32;
		memcpy(big, &size, sizeof(size));
		if (shape->request == CSD_IOC_MSG_CALL)
			((struct csd_msg_call *)big)->timeout_ms = 20;
		if (shape->request == CSD_IOC_MSG_RECV)
			((struct csd_msg_recv *)big)->timeout_ms = 1;
		/* Nothing may be written where this program lives */
		if (shape->request == CSD_IOC_MESH_INFO)
			((struct csd_mesh_info *)big)->members &= 0xfff;
		if (shape->request == CSD_IOC_MSG_CALL)
			((struct csd_msg_call *)big)->response &= 0xfff;
		if (shape->request == CSD_IOC_MSG_RECV)
			((struct csd_msg_recv *)big)->payload &= 0xfff;
		if (!call(fd, shape->request, big) && shape->request == CSD_IOC_PIPELINE_START)
			close(((struct csd_pipeline_start *)big)->fd);
		holds(open_fds() <= before, "descriptors after %s", shape->name);
		if (round % 64 == 0)
			mesh = whole_mesh(fd);
	}
	memset(&msg, 0, sizeof(msg));
	fill_call(&msg, whole_mesh(fd));
	expect(send_with(fd, &msg), 0, "a ping afterwards");
	destroy_all(fd);
}

static const struct test tests[] = {
	{ "a structure smaller than the first published one is EINVAL, for each call", small_sizes },
	{ "a structure as an older program knows it is accepted, and nothing behind it is touched", older_sizes },
	{ "a larger structure whose tail is not zero is E2BIG, for each call", nonzero_tail },
	{ "a larger structure whose tail is zero is accepted and the tail untouched, for each call", zero_tail },
	{ "sizes up to 2^32 - 1 end in E2BIG or EFAULT, for each call", huge_sizes },
	{ "pointers to nothing are EFAULT, for each call", bad_pointers },
	{ "an answer that cannot be written is EFAULT, for each call", readonly_answers },
	{ "a mesh whose number cannot be told to the caller is not left behind", unwritable_create },
	{ "a pipeline whose descriptor cannot be told to the caller is not left behind", unwritable_start },
	{ "reserved members that are set are EOPNOTSUPP, for each call", reserved_members },
	{ "unknown commands are ENOTTY, on /dev/csd and on a pipeline", unknown_commands },
	{ "read, write, mmap and lseek do what the header says, or are refused", other_calls },
	{ "an unprivileged user cannot open /dev/csd: EACCES", node_mode },
	{ "6,000 random requests each end, and the mesh still answers", random_requests },
};

main_of(tests)

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the native test programs share: a table of named tests of which the
 * suite's run.sh runs one at a time (`PROGRAM N`; `PROGRAM --list` names them),
 * and assertions that end the test.  The program's exit status is the test's:
 * 0 passed, 1 failed, 4 skipped, as lib/ktap.sh has it.
 */
#ifndef CSDTEST_H
#define CSDTEST_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "csd.h"

struct test {
	const char *name;
	void (*run)(void);
};

/* A test ends here */
__attribute__((noreturn, format(printf, 3, 4)))
static inline void fail_at(const char *file, int line, const char *format, ...)
{
	va_list list;

	printf("%s:%d: ", file, line);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	printf("\n");
	fflush(stdout);
	_exit(1);
}
#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)

#define skip(...) do {				\
	printf(__VA_ARGS__);			\
	printf("\n");				\
	fflush(stdout);				\
	_exit(4);				\
} while (0)

static inline const char *errname(int error)
{
	return error ? strerrorname_np(error) : "success";
}

/* The errno that an ioctl ended with, 0 if it succeeded */
static inline int call(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg) < 0 ? errno : 0;
}

#define expect(got, want, ...) do {						\
	int got_ = (got), want_ = (want);					\
	if (got_ != want_) {							\
		char what_[160];						\
		snprintf(what_, sizeof(what_), __VA_ARGS__);			\
		fail("%s: %s, expected %s", what_, errname(got_), errname(want_)); \
	}									\
} while (0)

#define equal(got, want, ...) do {						\
	unsigned long long got_ = (got), want_ = (want);			\
	if (got_ != want_) {							\
		char what_[160];						\
		snprintf(what_, sizeof(what_), __VA_ARGS__);			\
		fail("%s: %llu (0x%llx), expected %llu (0x%llx)", what_, got_, got_, want_, want_); \
	}									\
} while (0)

#define holds(condition, ...) do {				\
	if (!(condition)) {					\
		char what_[160];				\
		snprintf(what_, sizeof(what_), __VA_ARGS__);	\
		fail("%s: (%s) does not hold", what_, #condition); \
	}							\
} while (0)

static inline int open_csd(int flags)
{
	int fd = open("/dev/csd", O_RDWR | O_CLOEXEC | flags);

	if (fd < 0)
		fail("cannot open /dev/csd: %s", errname(errno));
	return fd;
}

static inline int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Descriptors that this process has open */
static inline int open_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static inline struct csd_info info_of(int fd)
{
	struct csd_info info = { .size = sizeof(info) };

	expect(call(fd, CSD_IOC_INFO, &info), 0, "CSD_IOC_INFO");
	return info;
}

static inline void destroy_all(int fd)
{
	struct csd_info info = info_of(fd);

	for (int i = 0; i < 64; i++) {
		struct csd_mesh_destroy destroy = {
			.size = sizeof(destroy), .mesh = i, .flags = CSD_MESH_DESTROY_FORCE,
		};

		if (info.meshes >> i & 1)
			expect(call(fd, CSD_IOC_MESH_DESTROY, &destroy), 0, "destroying mesh%d", i);
	}
}

/* The mesh of all drives, made if there is none */
static inline uint32_t whole_mesh(int fd)
{
	struct csd_mesh_create create = { .size = sizeof(create) };

	destroy_all(fd);
	expect(call(fd, CSD_IOC_MESH_CREATE, &create), 0, "creating the mesh of all drives");
	return create.mesh;
}

/* The parameters of checksum: a header only. IDC specification, "Stage parameters" */
static const unsigned char checksum_params[8] = { 4, 0, 1, 0, 8, 0, 0, 0 };

static inline int run_tests(int argc, char **argv, const struct test *tests, int count)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (int i = 0; i < count; i++)
			printf("%s\n", tests[i].name);
		return 0;
	}
	if (argc == 2 && argv[1][0] >= '0' && argv[1][0] <= '9' && atoi(argv[1]) < count) {
		tests[atoi(argv[1])].run();
		return 0;
	}
	fprintf(stderr, "usage: %s --list | N\n", argv[0]);
	return 2;
}

#define main_of(tests)								\
	int main(int argc, char **argv)						\
	{									\
		return run_tests(argc, argv, tests, sizeof(tests) / sizeof((tests)[0])); \
	}

#endif

// SPDX-License-Identifier: GPL-2.0
/*
 * The values of pipelines, beyond what uapi/csd.h allows.  Written from the
 * header alone.  Expects five bound drives with a PMR each.
 */
#include "abi.h"

static int start_with(int fd, struct csd_pipeline_start *start)
{
	start->size = sizeof(*start);
	start->error_stage = 0xabcd;
	return call(fd, CSD_IOC_PIPELINE_START, start);
}

/* What is wrong with START is wrong with PLAN, and nothing is left behind */
static void refused(int fd, struct csd_pipeline_start start, int want, const char *what)
{
	struct csd_pipeline_start plan = start;
	int before = open_fds();

	expect(start_with(fd, &start), want, "starting with %s", what);
	plan.size = sizeof(plan);
	expect(call(fd, CSD_IOC_PIPELINE_PLAN, &plan), want, "planning with %s", what);
	equal(open_fds(), before, "open descriptors after %s", what);
}

static void pipeline_values(void)
{
	int fd = open_csd(0);
	struct csd_pipeline_start good = { 0 };
	struct csd_drive_namespace ns = { .size = sizeof(ns) };
	uint64_t bytes;

	fill_pipeline(&good, whole_mesh(fd));
	expect(call(fd, CSD_IOC_DRIVE_NAMESPACE, &ns), 0, "DRIVE_NAMESPACE");
	bytes = ns.blocks * ns.block_bytes;
#define with(want, what, ...) do {					\
	struct csd_pipeline_start start = good;				\
	__VA_ARGS__;							\
	refused(fd, start, want, what);					\
} while (0)
	with(EINVAL, "no stage", start.stage_count = 0);
	with(EINVAL, "9 stages", start.stage_count = 9);
	with(EINVAL, "2^32 - 1 stages", start.stage_count = 0xffffffff);
	with(EFAULT, "stages at 0", start.stages = 0);
	with(EFAULT, "stages at a kernel address", start.stages = 0xffff888000000000);
	with(EINVAL, "chunks of 4095", start.chunk_bytes = 4095);
	with(EINVAL, "chunks of 1", start.chunk_bytes = 1);
	with(EINVAL, "chunks of 4097", start.chunk_bytes = 4097);
	with(EINVAL, "chunks of 2 MiB", start.chunk_bytes = 2 << 20);
	with(EINVAL, "a window of 4096", start.window_bytes = 4096);
	with(EINVAL, "a window of 65537", start.window_bytes = 65537);
	with(EINVAL, "a window of 32 MiB", start.window_bytes = 32 << 20);
	with(EOPNOTSUPP, "sink 2", start.sink = 2);
	with(EOPNOTSUPP, "flag 1", start.flags = 1);
	with(EOPNOTSUPP, "flag 0x80000000", start.flags = 0x80000000);
	with(EINVAL, "a deadline of more than an hour", start.deadline_ms = 3600001);
	with(ENXIO, "source csd63", start.source_drive = NOT_THERE);
	with(ENXIO, "source any drive", start.source_drive = CSD_DRIVE_ANY);
	with(EOPNOTSUPP, "the host as source", start.source_drive = CSD_MEMBER_HOST);
	with(ENXIO, "source namespace 77", start.source_nsid = 77);
	with(ERANGE, "one byte too many", start.source_length = bytes + 1);
	with(ERANGE, "an offset beyond the namespace", start.source_offset = bytes + 1; start.source_length = 0);
	with(ERANGE, "one byte beyond", start.source_offset = bytes; start.source_length = 1);
	with(ERANGE, "a sum beyond 2^64", start.source_offset = 4096; start.source_length = -4096ULL);
	with(ERANGE, "a sum beyond 2^64 the other way", start.source_offset = -1ULL; start.source_length = 2);
	with(ENXIO, "sink csd63", start.sink = CSD_SINK_NAMESPACE; start.sink_drive = NOT_THERE);
	with(ENXIO, "sink namespace 77", start.sink = CSD_SINK_NAMESPACE; start.sink_nsid = 77);
	with(EINVAL, "a sink offset within a block", start.sink = CSD_SINK_NAMESPACE; start.sink_offset = 1);
	with(ERANGE, "a sink beyond its namespace", start.sink = CSD_SINK_NAMESPACE; start.sink_offset = bytes * 2);
	destroy_all(fd);
}

static void stage_values(void)
{
	int fd = open_csd(0);
	static unsigned char key[64], params[CSD_MAX_PARAMS + 8];
	/* encrypt: function 2, version 1, length 40, key slot 0, offset 0, IV */
	static const unsigned char cipher[40] = { 2, 0, 1, 0, 40 };
	struct csd_stage fine = the_stage, stages[2];
	struct csd_pipeline_start start = { 0 };
	uint32_t mesh = whole_mesh(fd);

	fill_pipeline(&start, mesh);
	fine = the_stage;
#define stage_with(want, what, ...) do {					\
	struct csd_stage stage = fine;						\
	int error, before = open_fds();						\
	__VA_ARGS__;								\
	stages[0] = fine;							\
	stages[1] = stage;							\
	fill_pipeline(&start, mesh);						\
	start.stages = (uintptr_t)stages;					\
	start.stage_count = 2;							\
	error = start_with(fd, &start);						\
	expect(error, want, "a second stage with %s", what);			\
	equal(start.error_stage, 1, "error_stage of %s", what);			\
	equal(open_fds(), before, "open descriptors after %s", what);		\
} while (0)
#define as_cipher(stage) ((stage).function = 2, (stage).params = (uintptr_t)cipher, \
	(stage).params_len = sizeof(cipher), (stage).key = (uintptr_t)key, (stage).key_len = 32)

	stage_with(EOPNOTSUPP, "function 0", stage.function = 0);
	stage_with(EOPNOTSUPP, "function 99", stage.function = 99);
	stage_with(EOPNOTSUPP, "function 2^32 - 1", stage.function = 0xffffffff);
	stage_with(EOPNOTSUPP, "function 0x10004", stage.function = 0x10004);
	stage_with(ENXIO, "drive 63", stage.drive = NOT_THERE);
	stage_with(EOPNOTSUPP, "the host", stage.drive = CSD_MEMBER_HOST);
	stage_with(EINVAL, "too many parameters", stage.params = (uintptr_t)params;
		   stage.params_len = CSD_MAX_PARAMS + 1);
	stage_with(EINVAL, "2^32 - 1 parameters", stage.params_len = 0xffffffff);
	stage_with(EFAULT, "parameters at 0", stage.params = 0);
	stage_with(EINVAL, "no parameters", stage.params_len = 0);
	stage_with(EINVAL, "parameters cut short", stage.params_len = 7);
	stage_with(EINVAL, "parameters of zeroes", stage.params = (uintptr_t)params; stage.params_len = 8);
	stage_with(EINVAL, "parameters of another function", stage.params = (uintptr_t)cipher;
		   stage.params_len = sizeof(cipher));
	stage_with(EINVAL, "a key for a function that takes none", stage.key = (uintptr_t)key; stage.key_len = 32);
	stage_with(EINVAL, "no key", as_cipher(stage); stage.key_len = 0);
	stage_with(EINVAL, "a key of 16 bytes", as_cipher(stage); stage.key_len = 16);
	stage_with(EINVAL, "a key of 31 bytes", as_cipher(stage); stage.key_len = 31);
	stage_with(EINVAL, "a key of 33 bytes", as_cipher(stage); stage.key_len = 33);
	stage_with(EINVAL, "a key of 2^32 - 1 bytes", as_cipher(stage); stage.key_len = 0xffffffff);
	stage_with(EFAULT, "a key at 0x10", as_cipher(stage); stage.key = 0x10);
	destroy_all(fd);
}

static void plan_fills_in(void)
{
	int fd = open_csd(0), before;
	struct csd_stage stages[2];
	struct csd_pipeline_start plan = { 0 };
	struct csd_info info;

	fill_pipeline(&plan, whole_mesh(fd));
	stages[0] = stages[1] = the_stage;
	stages[1].drive = 3;
	plan.size = sizeof(plan);
	plan.stages = (uintptr_t)stages;
	plan.stage_count = 2;
	before = open_fds();
	expect(call(fd, CSD_IOC_PIPELINE_PLAN, &plan), 0, "PIPELINE_PLAN");
	equal(open_fds(), before, "open descriptors");
	holds(stages[0].drive < 5, "the first stage is placed");
	equal(stages[1].drive, 3, "drive of the stage that was placed by hand");
	holds(plan.chunk_bytes >= 4096 && plan.chunk_bytes <= 1 << 20 && plan.chunk_bytes % 4096 == 0,
	      "chunk size");
	info = info_of(fd);
	holds(info.meshes, "the mesh is there");
	destroy_all(fd);
}

static void pipeline_numbers(void)
{
	int fd = open_csd(0), pipeline;
	struct csd_pipeline_info info = { .size = sizeof(info), .after = ~0ULL };
	struct csd_pipeline_cancel cancel = { .size = sizeof(cancel), .pipeline = ~0ULL };
	struct csd_pipeline_start start = { 0 };
	struct pollfd poller;
	char byte;

	expect(call(fd, CSD_IOC_PIPELINE_INFO, &info), ENXIO, "PIPELINE_INFO after the last");
	expect(call(fd, CSD_IOC_PIPELINE_CANCEL, &cancel), ENXIO, "cancelling what there is not");
	cancel.pipeline = 0;
	expect(call(fd, CSD_IOC_PIPELINE_CANCEL, &cancel), ENXIO, "cancelling pipeline 0");

	fill_pipeline(&start, whole_mesh(fd));
	expect(start_with(fd, &start), 0, "a pipeline");
	pipeline = start.fd;
	holds(fcntl(pipeline, F_GETFD) & FD_CLOEXEC, "close on exec");
	poller = (struct pollfd){ .fd = pipeline, .events = POLLIN };
	holds(poll(&poller, 1, 10000) == 1, "it says something in 10 s");
	while (read(pipeline, &byte, 1) > 0)
		;
	cancel.pipeline = start.pipeline;
	expect(call(fd, CSD_IOC_PIPELINE_CANCEL, &cancel), EALREADY, "cancelling what has ended");
	info = (struct csd_pipeline_info){ .size = sizeof(info), .after = start.pipeline - 1 };
	expect(call(fd, CSD_IOC_PIPELINE_INFO, &info), 0, "PIPELINE_INFO");
	equal(info.pipeline, start.pipeline, "its number");
	equal(info.progress.state, CSD_PIPELINE_DONE, "its state");
	equal(info.progress.bytes_in, 4096, "bytes in");
	close(pipeline);
	destroy_all(fd);
}

static const struct test tests[] = {
	{ "values of pipelines are held to their ranges and refusals leave nothing", pipeline_values },
	{ "what is wrong with a stage names the stage in error_stage", stage_values },
	{ "a plan fills in drives and chunk size and starts nothing", plan_fills_in },
	{ "numbers of pipelines: ENXIO where there is none, EALREADY where it has ended", pipeline_numbers },
};

main_of(tests)

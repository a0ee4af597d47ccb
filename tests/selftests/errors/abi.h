/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Every call of uapi/csd.h that takes a structure, with a request that is good.
 * Shared by the programs of this suite, which break these requests.
 */
#ifndef ABI_H
#define ABI_H

#include "csdtest.h"

#define NOT_THERE 63		/* number of a drive, mesh or member that does not exist */

/* Every call that takes a structure */
struct ioctl_shape {
	const char *name;
	unsigned long request;
	size_t size;
	/* Its size when it was first published, where it has grown since; else 0 */
	size_t first;
	/* Byte offsets of members that must be zero, ended by 0 */
	size_t reserved[4];
	/* On which a valid request is made of zeroes and `size` alone, 0: EINVAL or the like */
	void (*fill)(void *arg, uint32_t mesh);
};

static inline void fill_first(void *arg, uint32_t mesh)
{
	(void)arg;
	(void)mesh;
}

static inline void fill_probe(void *arg, uint32_t mesh)
{
	struct csd_drive_probe_memory *probe = arg;

	(void)mesh;
	probe->memory = CSD_MEMORY_PMR;
	probe->bytes = 4096;
}

static inline void fill_mesh(void *arg, uint32_t mesh)
{
	/* Same place in mesh_info and ring_info */
	struct csd_mesh_info *info = arg;

	info->mesh = mesh;
}

static inline void fill_ring(void *arg, uint32_t mesh)
{
	struct csd_ring_info *ring = arg;

	ring->mesh = mesh;
	ring->from = CSD_MEMBER_HOST;
	ring->to = 0;
}

static inline void fill_reset(void *arg, uint32_t mesh)
{
	struct csd_ring_reset *reset = arg;

	reset->mesh = mesh;
	reset->from = CSD_MEMBER_HOST;
	reset->to = 0;
}

static inline void fill_call(void *arg, uint32_t mesh)
{
	struct csd_msg_call *msg = arg;

	msg->mesh = mesh;
	msg->from = CSD_MEMBER_HOST;
	msg->to = 0;
	msg->opcode = CSD_MSG_PING;
}

static struct csd_stage the_stage = {
	.function = 4, .drive = CSD_DRIVE_ANY,
	.params_len = sizeof(checksum_params),
};

static inline void fill_pipeline(void *arg, uint32_t mesh)
{
	struct csd_pipeline_start *start = arg;

	the_stage.params = (uintptr_t)checksum_params;
	start->mesh = mesh;
	start->source_drive = 0;
	start->source_length = 4096;
	start->stages = (uintptr_t)&the_stage;
	start->stage_count = 1;
}

#define AT(type, member) offsetof(struct type, member)

static const struct ioctl_shape shapes[] = {
	{ "CSD_IOC_INFO", CSD_IOC_INFO, sizeof(struct csd_info), 0,
	  { AT(csd_info, reserved) }, fill_first },
	{ "CSD_IOC_DRIVE_INFO", CSD_IOC_DRIVE_INFO, sizeof(struct csd_drive_info), 0,
	  { AT(csd_drive_info, reserved) }, fill_first },
	{ "CSD_IOC_DRIVE_NAMESPACE", CSD_IOC_DRIVE_NAMESPACE, sizeof(struct csd_drive_namespace), 0,
	  { AT(csd_drive_namespace, reserved) }, fill_first },
	{ "CSD_IOC_DRIVE_PROBE_MEMORY", CSD_IOC_DRIVE_PROBE_MEMORY, sizeof(struct csd_drive_probe_memory), 0,
	  { AT(csd_drive_probe_memory, reserved) }, fill_probe },
	{ "CSD_IOC_MESH_INFO", CSD_IOC_MESH_INFO, sizeof(struct csd_mesh_info), 64, { 0 }, fill_mesh },
	{ "CSD_IOC_RING_INFO", CSD_IOC_RING_INFO, sizeof(struct csd_ring_info), 96, { 0 }, fill_ring },
	{ "CSD_IOC_MSG_CALL", CSD_IOC_MSG_CALL, sizeof(struct csd_msg_call), 0, { 0 }, fill_call },
	{ "CSD_IOC_PIPELINE_PLAN", CSD_IOC_PIPELINE_PLAN, sizeof(struct csd_pipeline_start), 0, { 0 }, fill_pipeline },
	/* Those that do not succeed as they stand, or change something */
	{ "CSD_IOC_DRIVE_SET", CSD_IOC_DRIVE_SET, sizeof(struct csd_drive_set), 0,
	  { AT(csd_drive_set, reserved) }, NULL },
	{ "CSD_IOC_MESH_CREATE", CSD_IOC_MESH_CREATE, sizeof(struct csd_mesh_create), 64,
	  { AT(csd_mesh_create, reserved), AT(csd_mesh_create, reserved2) }, NULL },
	{ "CSD_IOC_MESH_DESTROY", CSD_IOC_MESH_DESTROY, sizeof(struct csd_mesh_destroy), 0,
	  { AT(csd_mesh_destroy, reserved) }, NULL },
	{ "CSD_IOC_MSG_RECV", CSD_IOC_MSG_RECV, sizeof(struct csd_msg_recv), 0, { 0 }, NULL },
	{ "CSD_IOC_PIPELINE_START", CSD_IOC_PIPELINE_START, sizeof(struct csd_pipeline_start), 0, { 0 }, NULL },
	{ "CSD_IOC_PIPELINE_INFO", CSD_IOC_PIPELINE_INFO, sizeof(struct csd_pipeline_info), 0, { 0 }, NULL },
	{ "CSD_IOC_PIPELINE_CANCEL", CSD_IOC_PIPELINE_CANCEL, sizeof(struct csd_pipeline_cancel), 0,
	  { AT(csd_pipeline_cancel, reserved) }, NULL },
	{ "CSD_IOC_RING_RESET", CSD_IOC_RING_RESET, sizeof(struct csd_ring_reset), 0,
	  { AT(csd_ring_reset, reserved) }, NULL },
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* A pipeline that is open: what CSD_IOC_PIPELINE_PROGRESS is asked of */
static inline int start_pipeline(int fd, uint32_t mesh, uint64_t length)
{
	struct csd_pipeline_start start = { .size = sizeof(start) };

	fill_pipeline(&start, mesh);
	start.source_length = length;
	expect(call(fd, CSD_IOC_PIPELINE_START, &start), 0, "CSD_IOC_PIPELINE_START");
	holds(start.fd >= 0, "CSD_IOC_PIPELINE_START's descriptor");
	return start.fd;
}

/* Calls that have structures of their own for it */
static inline int create_with(int fd, struct csd_mesh_create *create)
{
	create->size = sizeof(*create);
	return call(fd, CSD_IOC_MESH_CREATE, create);
}

static inline int send_with(int fd, struct csd_msg_call *msg)
{
	msg->size = sizeof(*msg);
	return call(fd, CSD_IOC_MSG_CALL, msg);
}

#endif

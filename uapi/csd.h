/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * csd: meshes of NVMe computational storage drives, user-space ABI.
 * Over 500 lines: the ABI has one header.
 *
 * One character device, /dev/csd (root:csd, 0660). Every structure starts with
 * its own size, filled in by the caller, and grows only at its end:
 *
 *  - size smaller than the first published layout: EINVAL
 *  - size larger than the kernel's and the tail is not all zero: E2BIG
 *  - size larger and the tail is zero: accepted, the tail stays untouched;
 *    more than a page is E2BIG all the same, as with clone3(2)
 *  - smaller than the kernel's: missing members read as zero
 *
 * Errors common to all calls:
 *
 *  ENOTTY      unknown command
 *  EFAULT      a user pointer does not point to mapped memory
 *  EINVAL      a field is out of its range
 *  EOPNOTSUPP  a field that exists has a value or flag this kernel does not know
 *              (reserved members and unknown flag bits must be zero)
 *  ENXIO       no such drive, mesh or pipeline
 *  ENODEV      the drive is gone (unplugged, unbound or failed)
 *
 * Drives are numbered as in their names (csd0 is 0), in PCI order of binding.
 * No call takes or returns a bus address, a kernel pointer or a physical
 * address.
 */
#ifndef _UAPI_LINUX_CSD_H
#define _UAPI_LINUX_CSD_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define CSD_ABI_VERSION		1

#define CSD_IOC_TYPE		0x9C

#define CSD_IOC_INFO			_IO(CSD_IOC_TYPE, 0x00)
#define CSD_IOC_DRIVE_INFO		_IO(CSD_IOC_TYPE, 0x01)
#define CSD_IOC_DRIVE_SET		_IO(CSD_IOC_TYPE, 0x02)
#define CSD_IOC_DRIVE_NAMESPACE		_IO(CSD_IOC_TYPE, 0x03)
#define CSD_IOC_DRIVE_PROBE_MEMORY	_IO(CSD_IOC_TYPE, 0x04)
#define CSD_IOC_MESH_CREATE		_IO(CSD_IOC_TYPE, 0x10)
#define CSD_IOC_MESH_DESTROY		_IO(CSD_IOC_TYPE, 0x11)
#define CSD_IOC_MESH_INFO		_IO(CSD_IOC_TYPE, 0x12)
#define CSD_IOC_RING_INFO		_IO(CSD_IOC_TYPE, 0x13)
#define CSD_IOC_RING_RESET		_IO(CSD_IOC_TYPE, 0x14)
#define CSD_IOC_MSG_CALL		_IO(CSD_IOC_TYPE, 0x20)
#define CSD_IOC_MSG_RECV		_IO(CSD_IOC_TYPE, 0x21)
#define CSD_IOC_PIPELINE_START		_IO(CSD_IOC_TYPE, 0x30)
#define CSD_IOC_PIPELINE_PLAN		_IO(CSD_IOC_TYPE, 0x31)
#define CSD_IOC_PIPELINE_INFO		_IO(CSD_IOC_TYPE, 0x32)
#define CSD_IOC_PIPELINE_CANCEL		_IO(CSD_IOC_TYPE, 0x33)
/* On the descriptor returned by CSD_IOC_PIPELINE_START: */
#define CSD_IOC_PIPELINE_PROGRESS	_IO(CSD_IOC_TYPE, 0x34)

/* Limits */
#define CSD_MAX_MEMBERS		32	/* drives in one mesh */
#define CSD_MAX_PAIRS		1056	/* ordered pairs of members in one mesh */
#define CSD_MAX_STAGES		8	/* stages in one pipeline */
#define CSD_MAX_PARAMS		2048	/* bytes of one stage's parameters */
#define CSD_MAX_NAMESPACES	16	/* namespaces used per drive */
#define CSD_KEY_BYTES		32	/* AES-256 */

/* Member and drive numbers with a meaning of their own */
#define CSD_MEMBER_HOST		0xffffffffU	/* the host, member 0 of every mesh */
#define CSD_DRIVE_ANY		0xfffffffeU	/* a stage that the first drive places */
#define CSD_MESH_NONE		0xffffffffU	/* drive is in no mesh */

/**
 * struct csd_info - CSD_IOC_INFO
 * @size: sizeof(struct csd_info)
 * @abi: out, CSD_ABI_VERSION
 * @drives: out, bit N is set while csdN is bound
 * @meshes: out, bit N is set while mesh N exists
 * @functions: out, bit N is set if the module implements function id N
 * @idc_version: out, version of the inter-drive protocol, major << 16 | minor
 * @reserved: zero
 */
struct csd_info {
	__u32 size;
	__u32 abi;
	__aligned_u64 drives;
	__aligned_u64 meshes;
	__aligned_u64 functions;
	__u32 idc_version;
	__u32 reserved;
};

/* csd_drive_info.state */
#define CSD_DRIVE_STARTING	0
#define CSD_DRIVE_READY		1
#define CSD_DRIVE_RESETTING	2
#define CSD_DRIVE_FAILED	3
#define CSD_DRIVE_GONE		4

/* csd_drive_info.kind */
#define CSD_DRIVE_PROXIED	0	/* the module runs the drive's firmware logic */
#define CSD_DRIVE_FIRMWARE	1	/* the drive runs IDC itself */

/* csd_drive_info.memory_flags */
#define CSD_MEMORY_CMB		(1U << 0)	/* CMB present and enabled */
#define CSD_MEMORY_PMR		(1U << 1)	/* PMR present and enabled */
#define CSD_MEMORY_PMR_FOUND	(1U << 2)	/* PMR present; consent or signature decides use */
#define CSD_MEMORY_PMR_SIGNED	(1U << 3)	/* PMR carried csd's signature at bind */

/**
 * struct csd_drive_counters - counters of a drive since it was bound
 * @commands: NVMe commands completed
 * @bytes_read: bytes read from storage by those commands
 * @bytes_written: bytes written to storage
 * @errors: commands completed with an error status
 * @timeouts: commands that ran into the timeout
 * @aborts: Abort commands sent
 * @resets: controller resets
 * @aens: asynchronous events received
 * @messages_sent: IDC entries sent by this member
 * @messages_received: IDC entries received by this member
 * @host_cpu_bytes: data bytes that the host's CPU touched for this drive (proxied drives)
 */
struct csd_drive_counters {
	__aligned_u64 commands;
	__aligned_u64 bytes_read;
	__aligned_u64 bytes_written;
	__aligned_u64 errors;
	__aligned_u64 timeouts;
	__aligned_u64 aborts;
	__aligned_u64 resets;
	__aligned_u64 aens;
	__aligned_u64 messages_sent;
	__aligned_u64 messages_received;
	__aligned_u64 host_cpu_bytes;
};

/**
 * struct csd_drive_info - CSD_IOC_DRIVE_INFO
 * @size: sizeof(struct csd_drive_info)
 * @drive: in, number of the drive
 * @state: out, CSD_DRIVE_*
 * @kind: out, CSD_DRIVE_PROXIED or CSD_DRIVE_FIRMWARE
 * @mesh: out, mesh the drive is in or CSD_MESH_NONE
 * @memory_flags: out, CSD_MEMORY_*
 * @cmb_bytes: out, size of the CMB, 0 if there is none
 * @pmr_bytes: out, size of the PMR, 0 if there is none
 * @memory_used: out, bytes of its CMB/PMR in use by rings, buffers and windows
 * @host_memory: out, bytes of host memory held for this drive besides NVMe queues
 * @functions: out, bit N: function id N is offered
 * @namespaces: out, number of usable namespaces
 * @cntlid: out, NVMe controller id
 * @numa_node: out, -1 if unknown
 * @nvme_version: out, VS register
 * @pci: out, address "0000:03:00.0"
 * @nqn: out, NVM subsystem NQN
 * @model: out, Identify MN, trailing blanks cut
 * @serial: out, Identify SN, trailing blanks cut
 * @firmware: out, Identify FR, trailing blanks cut
 * @critical_warning: out, SMART critical warning byte as last read
 * @reserved: zero
 * @counters: out
 *
 * Errors: ENXIO no such drive.
 */
struct csd_drive_info {
	__u32 size;
	__u32 drive;
	__u32 state;
	__u32 kind;
	__u32 mesh;
	__u32 memory_flags;
	__aligned_u64 cmb_bytes;
	__aligned_u64 pmr_bytes;
	__aligned_u64 memory_used;
	__aligned_u64 host_memory;
	__aligned_u64 functions;
	__u32 namespaces;
	__u32 cntlid;
	__s32 numa_node;
	__u32 nvme_version;
	char pci[16];
	char nqn[256];
	char model[48];
	char serial[24];
	char firmware[16];
	__u32 critical_warning;
	__u32 reserved;
	struct csd_drive_counters counters;
};

/* csd_drive_set.flags */
#define CSD_DRIVE_SET_USE_PMR	(1U << 0)	/* consent: the PMR's contents may be overwritten */

/**
 * struct csd_drive_set - CSD_IOC_DRIVE_SET
 * @size: sizeof(struct csd_drive_set)
 * @drive: in, number of the drive
 * @flags: in, CSD_DRIVE_SET_*
 * @reserved: zero
 *
 * Errors: ENXIO no such drive; EBUSY it is in a mesh; ENOMEM/ENODEV the PMR
 * could not be enabled; EOPNOTSUPP it has none.
 */
struct csd_drive_set {
	__u32 size;
	__u32 drive;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct csd_drive_namespace - CSD_IOC_DRIVE_NAMESPACE
 * @size: sizeof(struct csd_drive_namespace)
 * @drive: in, number of the drive
 * @index: in, 0 .. namespaces - 1
 * @nsid: out
 * @block_bytes: out, LBA data size
 * @reserved: zero
 * @blocks: out, size in LBAs
 */
struct csd_drive_namespace {
	__u32 size;
	__u32 drive;
	__u32 index;
	__u32 nsid;
	__u32 block_bytes;
	__u32 reserved;
	__aligned_u64 blocks;
};

/**
 * struct csd_drive_probe_memory - CSD_IOC_DRIVE_PROBE_MEMORY
 *
 * Times the host's own accesses to a drive's memory, which bound what a
 * proxied drive can do. Uses free space only; contents are restored.
 *
 * @size: sizeof(struct csd_drive_probe_memory)
 * @drive: in, number of the drive
 * @memory: in, CSD_MEMORY_CMB or CSD_MEMORY_PMR
 * @reserved: zero
 * @bytes: in, how many to read and write, 4096 .. 1 MiB
 * @read_ns: out, time of reading them
 * @write_ns: out, time of writing them, read back once at the end
 */
struct csd_drive_probe_memory {
	__u32 size;
	__u32 drive;
	__u32 memory;
	__u32 reserved;
	__aligned_u64 bytes;
	__aligned_u64 read_ns;
	__aligned_u64 write_ns;
};

/* csd_mesh_create.placement, csd_mesh_pair.place: whose memory the entries are in */
#define CSD_PLACE_RECEIVER	0	/* the receiver's */
#define CSD_PLACE_SENDER	1	/* the sender's */
#define CSD_PLACE_HOST		2	/* the host's */
#define CSD_PLACE_MEMBER	3	/* one drive's, for all of them (a hub) */

/* csd_mesh_create.publish, csd_mesh_pair.publish */
#define CSD_PUBLISH_ENTRY	0	/* an entry validates itself */
#define CSD_PUBLISH_INDEX	1	/* a tail cell is written after the entries */

/* csd_mesh_create.memory */
#define CSD_MESH_MEMORY_AUTO	0	/* PMR where usable, else CMB */
#define CSD_MESH_MEMORY_PMR	1
#define CSD_MESH_MEMORY_CMB	2

/* csd_mesh_create.form, csd_mesh_pair.form */
#define CSD_FORM_RING		0
#define CSD_FORM_LIST		1	/* a linked list of nodes from a pool */

/* csd_mesh_create.share: who has a buffer together */
#define CSD_SHARE_NONE		0	/* one buffer per ordered pair */
#define CSD_SHARE_WRITERS	1	/* one per receiver: all others write it */
#define CSD_SHARE_READERS	2	/* one per sender: all others read it */
#define CSD_SHARE_BOTH		3	/* one for all members */
#define CSD_SHARE_PAIR		4	/* one per pair: both directions */

/* csd_mesh_create.ring_flags, csd_mesh_pair.ring_flags */
#define CSD_RING_FLAG_OUT_OF_ORDER	(1U << 0)	/* consumed in any order, by bitmaps */
#define CSD_RING_FLAG_DOORBELL		(1U << 1)	/* a word per sender says that there is more */
#define CSD_RING_FLAG_METADATA		(1U << 2)	/* who, to whom and how long in a word per slot */

/* csd_mesh_create.establish: who lays out a buffer */
#define CSD_ESTABLISH_HOST	0
#define CSD_ESTABLISH_RECEIVER	1
#define CSD_ESTABLISH_SENDER	2
#define CSD_ESTABLISH_MEMBER	3	/* one drive, for all */
#define CSD_ESTABLISH_DISCOVER	4	/* of two members the one that advertises more free memory */

/* csd_mesh_create.notify: who tells the others of a layout */
#define CSD_NOTIFY_HOST		0	/* the host collects what was laid out and tells everybody */
#define CSD_NOTIFY_PEER		1	/* members read each other's offers on the board */

/* csd_mesh_create.select: which sender a member turns to */
#define CSD_SELECT_ROUND_ROBIN	0
#define CSD_SELECT_OLDEST	1	/* the one whose entry was seen first */

/* csd_mesh_pair.fields: what of the mesh's choices does not hold for the pair */
#define CSD_PAIR_PLACE		(1U << 0)	/* @place, @place_drive */
#define CSD_PAIR_PUBLISH	(1U << 1)	/* @publish */
#define CSD_PAIR_ENTRIES	(1U << 2)	/* @entries */
#define CSD_PAIR_ENTRY_BYTES	(1U << 3)	/* @entry_bytes */
#define CSD_PAIR_FORM		(1U << 4)	/* @form */
#define CSD_PAIR_RING_FLAGS	(1U << 5)	/* @ring_flags */

/**
 * struct csd_mesh_pair - how the buffer of one ordered pair differs, in csd_mesh_create.pairs
 * @from: drive number or CSD_MEMBER_HOST
 * @to: drive number or CSD_MEMBER_HOST
 * @fields: CSD_PAIR_*: which of the members below count
 * @place: CSD_PLACE_*
 * @place_drive: with CSD_PLACE_MEMBER, whose memory
 * @publish: CSD_PUBLISH_*
 * @entries: a power of two 4 .. 4096
 * @entry_bytes: a power of two 64 .. 4096
 * @form: CSD_FORM_*
 * @ring_flags: CSD_RING_FLAG_*
 * @reserved: zero
 */
struct csd_mesh_pair {
	__u32 from;
	__u32 to;
	__u32 fields;
	__u32 place;
	__u32 place_drive;
	__u32 publish;
	__u32 entries;
	__u32 entry_bytes;
	__u32 form;
	__u32 ring_flags;
	__u32 reserved[2];
};

/* csd_mesh_create.reason: what cannot be, or cannot be combined */
#define CSD_REASON_NONE				0
#define CSD_REASON_DRIVES			1	/* a mesh has 1 to 32 drives */
#define CSD_REASON_MEMBER			2	/* no such member */
#define CSD_REASON_PLACEMENT			3	/* a member's buffers have no valid place */
#define CSD_REASON_NOT_ESTABLISHED		4	/* a buffer was not laid out */
#define CSD_REASON_HUB_MEMORY			6	/* the hub lends no memory */
#define CSD_REASON_HUB_MEMBER			7	/* the hub is not in the mesh */
#define CSD_REASON_ESTABLISH_MEMBER		8	/* who is to establish is not in the mesh */
#define CSD_REASON_PAIR_MEMBER			9	/* a pair is not two members */
#define CSD_REASON_PAIR_TWICE			10	/* a pair is there twice */
#define CSD_REASON_PAIR_SHARED			11	/* shared buffers have no pairs of their own */
#define CSD_REASON_LIST_SHARED			12	/* a list cannot be shared */
#define CSD_REASON_LIST_INDEX			13	/* a list has no index */
#define CSD_REASON_LIST_OUT_OF_ORDER		14	/* a list is freed in any order as it is */
#define CSD_REASON_LIST_DOORBELL		15	/* a list's links are its doorbells */
#define CSD_REASON_LIST_METADATA		16	/* a list has links, no metadata */
#define CSD_REASON_LIST_ENTRIES			17	/* a list has 2 to 256 nodes */
#define CSD_REASON_SHARE_INDEX			18	/* a shared buffer has no one index */
#define CSD_REASON_SHARE_OUT_OF_ORDER		19	/* a shared buffer is consumed in any order as it is */
#define CSD_REASON_SHARE_DOORBELL		20	/* a shared buffer's bitmaps are its doorbells */
#define CSD_REASON_SHARE_METADATA		21	/* a shared buffer's entries name their members */
#define CSD_REASON_SHARE_ENTRIES		22	/* a shared buffer has 4 to 256 entries */
#define CSD_REASON_SHARE_PLACE_RECEIVER		23	/* there is no one receiver */
#define CSD_REASON_SHARE_PLACE_SENDER		24	/* there is no one sender */
#define CSD_REASON_SHARE_ESTABLISH_RECEIVER	25	/* there is no one receiver */
#define CSD_REASON_SHARE_ESTABLISH_SENDER	26	/* there is no one sender */
#define CSD_REASON_INDEX_DOORBELL		27	/* the index is a doorbell already */
#define CSD_REASON_RING_ENTRIES			0x101	/* entries: a power of two 4 .. 4096 */
#define CSD_REASON_RING_ENTRY_BYTES		0x102	/* entry_bytes: a power of two 64 .. 4096 */
/* What went wrong while the members laid out the buffers; reason_drive says with whom */
#define CSD_REASON_NO_ADVERT			0x401	/* it did not advertise in time */
#define CSD_REASON_NO_OFFER			0x402	/* it did not say in time where its buffers lie */
#define CSD_REASON_NO_AGREEMENT			0x403	/* it did not confirm the table in time */
#define CSD_REASON_STATEMENT_TORN		0x404	/* it left a damaged statement */
#define CSD_REASON_STATEMENT_HEADER		0x405	/* it made a malformed statement */
#define CSD_REASON_STATEMENT_CHANGED		0x406	/* it took a statement back */
#define CSD_REASON_PARTS			0x407	/* it laid out what is not its own */
#define CSD_REASON_DIFFERS			0x408	/* it has another table */
#define CSD_REASON_BOARD			0x409	/* it cannot reach the board */
#define CSD_REASON_CHARTER			0x40a	/* it was not told where the blocks lie */
#define CSD_REASON_NO_MEMORY			0x801	/* a drive has none to lend where some is needed */
#define CSD_REASON_SPACE			0x802	/* a drive's memory is too small, or too full */

/* csd_mesh_create.reason_pair */
#define CSD_PAIR_NONE		0xffffffffU	/* the refusal is about no pair of @pairs */

/**
 * struct csd_mesh_create - CSD_IOC_MESH_CREATE
 * @size: sizeof(struct csd_mesh_create)
 * @flags: in, zero
 * @drives: in, bit N: csdN becomes a member; 0 means all bound drives that are in no mesh
 * @entries: in, entries per ring, a power of two 4 .. 4096; 0 means 64. Lists and shared
 *	buffers: at most 256
 * @entry_bytes: in, bytes per entry, a power of two 64 .. 4096; 0 means 64
 * @placement: in, CSD_PLACE_*. A drive that has no memory to lend can only be in a mesh whose
 *	buffers are in the host's memory or in another drive's
 * @publish: in, CSD_PUBLISH_*
 * @memory: in, CSD_MESH_MEMORY_*
 * @mesh: out, number of the new mesh
 * @peer_rings: out, ordered pairs of drives
 * @host_rings: out, ordered pairs of the host and a drive
 * @busy_drive: out, with EBUSY the drive that is in another mesh
 * @reserved: zero
 * @create_ns: out, how long it took
 * @place_drive: in, with CSD_PLACE_MEMBER, whose memory
 * @form: in, CSD_FORM_*
 * @share: in, CSD_SHARE_*
 * @ring_flags: in, CSD_RING_FLAG_*
 * @establish: in, CSD_ESTABLISH_*
 * @establish_drive: in, with CSD_ESTABLISH_MEMBER, which drive
 * @notify: in, CSD_NOTIFY_*
 * @select: in, CSD_SELECT_*
 * @pair_count: in, elements of @pairs, at most CSD_MAX_PAIRS
 * @reason: out, with EINVAL, ENOSPC, EOPNOTSUPP, ETIMEDOUT and EPROTO: CSD_REASON_*
 * @pairs: in, pointer to an array of struct csd_mesh_pair, each ordered pair at most once
 * @reason_drive: out, with @reason: the drive that it is about, or CSD_MEMBER_HOST
 * @reason_pair: out, with @reason: the index in @pairs that it is about, or CSD_PAIR_NONE
 * @buffers: out, distinct buffers: as many as rings, fewer where they are shared
 * @reserved2: zero
 *
 * Errors: EBUSY a drive is in another mesh; EINVAL what was asked for cannot be combined;
 * ENOSPC a drive's memory is too small; EOPNOTSUPP a drive has no usable memory and needs
 * one; ETIMEDOUT a member did not take part in laying out the buffers; EPROTO it did so in an
 * impossible way; ENODEV a drive is not ready; EMFILE too many meshes.
 */
struct csd_mesh_create {
	__u32 size;
	__u32 flags;
	__aligned_u64 drives;
	__u32 entries;
	__u32 entry_bytes;
	__u32 placement;
	__u32 publish;
	__u32 memory;
	__u32 mesh;
	__u32 peer_rings;
	__u32 host_rings;
	__u32 busy_drive;
	__u32 reserved;
	__aligned_u64 create_ns;
	__u32 place_drive;
	__u32 form;
	__u32 share;
	__u32 ring_flags;
	__u32 establish;
	__u32 establish_drive;
	__u32 notify;
	__u32 select;
	__u32 pair_count;
	__u32 reason;
	__aligned_u64 pairs;
	__u32 reason_drive;
	__u32 reason_pair;
	__u32 buffers;
	__u32 reserved2;
};

/* csd_mesh_destroy.flags */
#define CSD_MESH_DESTROY_FORCE	(1U << 0)	/* cancel running pipelines instead of EBUSY */

/**
 * struct csd_mesh_destroy - CSD_IOC_MESH_DESTROY
 *
 * Waits for messages in flight to end with ECANCELED, scrubs the rings.
 *
 * @size: sizeof(struct csd_mesh_destroy)
 * @mesh: in
 * @flags: in, CSD_MESH_DESTROY_*
 * @reserved: zero
 *
 * Errors: ENXIO no such mesh; EBUSY a pipeline is running in it, or has ended and
 * its result was neither read nor its descriptor closed.
 */
struct csd_mesh_destroy {
	__u32 size;
	__u32 mesh;
	__u32 flags;
	__u32 reserved;
};

/* csd_mesh_member.state */
#define CSD_MEMBER_ATTACHED	0
#define CSD_MEMBER_LOST		1

/**
 * struct csd_mesh_member - one member in csd_mesh_info.members
 * @drive: number of the drive, or CSD_MEMBER_HOST
 * @member: its member id in this mesh, host 0
 * @state: CSD_MEMBER_*
 * @memory: CSD_MEMORY_CMB or CSD_MEMORY_PMR that it lends, 0 for host memory and for a drive that
 *	lends none
 * @ring_bytes: bytes of its memory that rings and cells take
 */
struct csd_mesh_member {
	__u32 drive;
	__u32 member;
	__u32 state;
	__u32 memory;
	__aligned_u64 ring_bytes;
};

/**
 * struct csd_mesh_info - CSD_IOC_MESH_INFO
 * @size: sizeof(struct csd_mesh_info)
 * @mesh: in
 * @entries: out, per ring
 * @entry_bytes: out
 * @placement: out
 * @publish: out
 * @peer_rings: out
 * @host_rings: out
 * @pipelines: out, running now
 * @member_count: in, room in @members; out, members there are (host included)
 * @members: in, pointer to an array of struct csd_mesh_member, may be 0
 * @host_bytes: out, host memory of the mesh
 * @create_ns: out, how long creation took
 * @place_drive: out, with CSD_PLACE_MEMBER whose memory, else CSD_MEMBER_HOST
 * @form: out, CSD_FORM_*
 * @share: out, CSD_SHARE_*
 * @ring_flags: out, CSD_RING_FLAG_*
 * @establish: out, CSD_ESTABLISH_*
 * @establish_drive: out, with CSD_ESTABLISH_MEMBER which drive, else CSD_MEMBER_HOST
 * @notify: out, CSD_NOTIFY_*
 * @select: out, CSD_SELECT_*
 * @memory: out, CSD_MESH_MEMORY_*, as asked for
 * @pair_count: out, pairs for which something of this does not hold (see CSD_IOC_RING_INFO)
 * @buffers: out, distinct buffers
 * @digest: out, CRC-32C of the mesh table: equal at all members
 * @establish_ns: out, how much of @create_ns the laying out of the buffers took
 * @resets: out, buffers reset since creation
 */
struct csd_mesh_info {
	__u32 size;
	__u32 mesh;
	__u32 entries;
	__u32 entry_bytes;
	__u32 placement;
	__u32 publish;
	__u32 peer_rings;
	__u32 host_rings;
	__u32 pipelines;
	__u32 member_count;
	__aligned_u64 members;
	__aligned_u64 host_bytes;
	__aligned_u64 create_ns;
	__u32 place_drive;
	__u32 form;
	__u32 share;
	__u32 ring_flags;
	__u32 establish;
	__u32 establish_drive;
	__u32 notify;
	__u32 select;
	__u32 memory;
	__u32 pair_count;
	__u32 buffers;
	__u32 digest;
	__aligned_u64 establish_ns;
	__aligned_u64 resets;
};

/**
 * struct csd_ring_info - CSD_IOC_RING_INFO
 *
 * What one ordered pair of members has, whatever its form. With @share the buffer holds entries of
 * other pairs too: then @bytes is the whole buffer's, and all that is counted is this pair's.
 *
 * @size: sizeof(struct csd_ring_info)
 * @mesh: in
 * @from: in, drive number or CSD_MEMBER_HOST
 * @to: in, drive number or CSD_MEMBER_HOST
 * @where: out, whose memory the entries are in, drive number or CSD_MEMBER_HOST
 * @memory: out, CSD_MEMORY_CMB, CSD_MEMORY_PMR or 0 (host)
 * @epoch: out
 * @state: out, CSD_RING_*
 * @tail: out, free-running, entries ever pushed modulo 2^32 in this epoch
 * @head: out, free-running, entries ever consumed modulo 2^32 in this epoch
 * @bytes: out, memory the ring takes, cells included
 * @messages: out, entries received
 * @message_bytes: out, bytes of these entries
 * @credit_writes: out, credit cell updates
 * @stalls: out, times the sender found the ring full
 * @stale: out, entries dropped because of an old epoch
 * @faults: out, entries or cells that broke the protocol
 * @buffer: out, number of the buffer; pairs that share one have the same
 * @form: out, CSD_FORM_*
 * @share: out, CSD_SHARE_*
 * @publish: out, CSD_PUBLISH_*
 * @place: out, CSD_PLACE_* as asked for; @where is what came of it
 * @flags: out, CSD_RING_FLAG_*
 * @establisher: out, who laid it out, drive number or CSD_MEMBER_HOST
 * @entries: out
 * @entry_bytes: out
 * @arbiter: out, with @share who grants the room in it, else CSD_MEMBER_HOST
 * @announcements: out, writes by the sender that say there is more (tail cells, links, maps)
 * @flushes: out, read-backs by the sender before an announcement that went another way
 * @sent: out, entries sent
 *
 * Errors: ENXIO no such mesh or ring.
 */
struct csd_ring_info {
	__u32 size;
	__u32 mesh;
	__u32 from;
	__u32 to;
	__u32 where;
	__u32 memory;
	__u32 epoch;
	__u32 state;
	__u32 tail;
	__u32 head;
	__aligned_u64 bytes;
	__aligned_u64 messages;
	__aligned_u64 message_bytes;
	__aligned_u64 credit_writes;
	__aligned_u64 stalls;
	__aligned_u64 stale;
	__aligned_u64 faults;
	__u32 buffer;
	__u32 form;
	__u32 share;
	__u32 publish;
	__u32 place;
	__u32 flags;
	__u32 establisher;
	__u32 entries;
	__u32 entry_bytes;
	__u32 arbiter;
	__aligned_u64 announcements;
	__aligned_u64 flushes;
	__aligned_u64 sent;
};

/* csd_ring_info.state */
#define CSD_RING_ATTACHED	0
#define CSD_RING_FENCED		1	/* a fault was seen; nothing more is taken from it */
#define CSD_RING_DETACHED	2	/* one of its ends is lost */
#define CSD_RING_RESETTING	3	/* it is being reset */

/* csd_ring_reset.flags */
#define CSD_RING_RESET_ABANDON	(1U << 0)	/* what is in it when the time is over is given up */

/**
 * struct csd_ring_reset - CSD_IOC_RING_RESET
 *
 * Gives the buffers between two members a new epoch while all others carry on: both ends send
 * nothing more, what is under way is taken, the memory is cleared, both ends join anew. With @share
 * that concerns everybody who has the buffer. A buffer fenced by a fault is reset with
 * CSD_RING_RESET_ABANDON only, as is one with a lost end among several.
 *
 * @size: sizeof(struct csd_ring_reset)
 * @mesh: in
 * @from: in, drive number or CSD_MEMBER_HOST
 * @to: in, drive number or CSD_MEMBER_HOST; the order does not matter
 * @flags: in, CSD_RING_RESET_*
 * @timeout_ms: in, how long what is under way may take, 0 means 5000, at most 60000
 * @epoch: out, the new epoch
 * @reserved: zero
 * @stale: out, entries of the old epoch that the ends have dropped
 * @abandoned: out, requests that were open and will not be answered
 * @reset_ns: out, how long the two could not talk
 *
 * Errors: ENXIO no such mesh or ring; ENODEV an end is lost; ETIMEDOUT it could not be drained, it
 * goes on under its old epoch; EBUSY it is being reset already; ECANCELED the mesh is being
 * destroyed; EPROTO it is fenced and CSD_RING_RESET_ABANDON was not given; EOVERFLOW all epochs are
 * used up; EINTR.
 */
struct csd_ring_reset {
	__u32 size;
	__u32 mesh;
	__u32 from;
	__u32 to;
	__u32 flags;
	__u32 timeout_ms;
	__u32 epoch;
	__u32 reserved;
	__aligned_u64 stale;
	__aligned_u64 abandoned;
	__aligned_u64 reset_ns;
};

/* csd_msg_call.opcode */
#define CSD_MSG_PING		0x01	/* answered at once with the same payload */
#define CSD_MSG_SEND		0x02	/* put into the receiver's inbox, then answered */

/* csd_msg_call.flags */
#define CSD_MSG_NO_RESPONSE	(1U << 0)	/* return once the entry is pushed */

/**
 * struct csd_msg_call - CSD_IOC_MSG_CALL
 *
 * Sends one message and waits for its response. With @from a drive, the host
 * asks that drive to send it (one more hop) and to report the answer.
 *
 * @size: sizeof(struct csd_msg_call)
 * @mesh: in
 * @from: in, drive number or CSD_MEMBER_HOST
 * @to: in, drive number or CSD_MEMBER_HOST
 * @opcode: in, CSD_MSG_*
 * @flags: in, CSD_MSG_*
 * @payload_len: in, 0 .. entry_bytes - 28
 * @response_len: in, room at @response; out, bytes of the answer
 * @payload: in, pointer
 * @response: in, pointer, may be 0
 * @timeout_ms: in, 0 means 5000
 * @status: out, NVMe status field (SCT << 8 | SC) of the answer, 0 is success
 * @rtt_ns: out, time from push to answer
 *
 * Errors: ETIMEDOUT no answer; ENODEV a member is lost; ECANCELED the mesh is
 * being destroyed; EMSGSIZE payload too long for the entries; EINTR; EAGAIN
 * no credit within the timeout; EIO the answer had an error status (@status
 * is filled in).
 */
struct csd_msg_call {
	__u32 size;
	__u32 mesh;
	__u32 from;
	__u32 to;
	__u32 opcode;
	__u32 flags;
	__u32 payload_len;
	__u32 response_len;
	__aligned_u64 payload;
	__aligned_u64 response;
	__u32 timeout_ms;
	__u32 status;
	__aligned_u64 rtt_ns;
};

/**
 * struct csd_msg_recv - CSD_IOC_MSG_RECV
 * @size: sizeof(struct csd_msg_recv)
 * @mesh: in
 * @at: in, whose inbox, drive number or CSD_MEMBER_HOST
 * @from: out, sender
 * @timeout_ms: in, 0: do not wait, 0xffffffff: for ever
 * @payload_len: in, room; out, bytes received
 * @payload: in, pointer
 * @dropped: out, messages lost since the last receive because the inbox was full
 *
 * Errors: EAGAIN/ETIMEDOUT none there; EMSGSIZE room too small (the message
 * stays); EINTR; ENODEV; ECANCELED.
 */
struct csd_msg_recv {
	__u32 size;
	__u32 mesh;
	__u32 at;
	__u32 from;
	__u32 timeout_ms;
	__u32 payload_len;
	__aligned_u64 payload;
	__aligned_u64 dropped;
};

/**
 * struct csd_stage - one stage of a pipeline
 * @function: in, function id (1 filter, 2 encrypt, 3 decrypt, 4 checksum)
 * @drive: in, drive number or CSD_DRIVE_ANY; out (plan), where it is placed
 * @params_len: in, 0 .. CSD_MAX_PARAMS
 * @key_len: in, 0 or CSD_KEY_BYTES
 * @params: in, pointer to parameters, encoded as the IDC specification says, key slot 0
 * @key: in, pointer to the key; it is copied to the key slot of the one drive that uses it
 */
struct csd_stage {
	__u32 function;
	__u32 drive;
	__u32 params_len;
	__u32 key_len;
	__aligned_u64 params;
	__aligned_u64 key;
};

/* csd_pipeline_start.sink */
#define CSD_SINK_FD		0	/* read the result from the returned descriptor */
#define CSD_SINK_NAMESPACE	1	/* write it to a namespace */

/**
 * struct csd_pipeline_start - CSD_IOC_PIPELINE_START, CSD_IOC_PIPELINE_PLAN
 *
 * Returns 0; @fd is a new descriptor (O_CLOEXEC). read(2) on it gives the result as
 * it comes and 0 at its end, or the pipeline's error; poll(2) says POLLIN when there
 * is something to read, POLLHUP when it has ended; close(2) cancels. With
 * CSD_IOC_PIPELINE_PLAN nothing starts: the stages' @drive and @chunk_bytes are
 * filled in as they would be used.
 *
 * @size: sizeof(struct csd_pipeline_start)
 * @mesh: in
 * @source_drive: in, the drive that reads, the pipeline's first drive
 * @source_nsid: in, 0 means its first namespace
 * @source_offset: in, bytes, any alignment
 * @source_length: in, bytes, may be 0
 * @stages: in, pointer to an array of struct csd_stage
 * @stage_count: in, 1 .. CSD_MAX_STAGES
 * @chunk_bytes: in/out, 4096 .. 1 MiB, a multiple of 4096; 0: chosen
 * @window_bytes: in, size of the result window, 64 KiB .. 16 MiB, a multiple of 4096; 0: chosen
 * @sink: in, CSD_SINK_*
 * @sink_drive: in, with CSD_SINK_NAMESPACE
 * @sink_nsid: in, with CSD_SINK_NAMESPACE, 0 means its first
 * @sink_offset: in, bytes, a multiple of the block size
 * @sink_length: in, bytes that may be written at most, 0: up to the end
 * @deadline_ms: in, longest time without progress, 0 means 30000, at most 1 hour
 * @flags: in, zero
 * @fd: out
 * @error_stage: out, with an error: which stage is to blame, counted from 0, 0xffffffff: none
 * @pipeline: out, its number, never used twice until the module is unloaded
 *
 * Errors: ENODEV a drive is not ready or left the mesh; EINVAL bad parameters of a stage,
 * key of the wrong length; ERANGE source beyond the namespace, or sink too small;
 * EOPNOTSUPP no drive, or not that drive, offers a function; ENOSPC not enough free drive memory
 * for the buffers; EBUSY too many pipelines on a drive.
 */
struct csd_pipeline_start {
	__u32 size;
	__u32 mesh;
	__u32 source_drive;
	__u32 source_nsid;
	__aligned_u64 source_offset;
	__aligned_u64 source_length;
	__aligned_u64 stages;
	__u32 stage_count;
	__u32 chunk_bytes;
	__u32 window_bytes;
	__u32 sink;
	__u32 sink_drive;
	__u32 sink_nsid;
	__aligned_u64 sink_offset;
	__aligned_u64 sink_length;
	__u32 deadline_ms;
	__u32 flags;
	__s32 fd;
	__u32 error_stage;
	__aligned_u64 pipeline;
};

/* csd_pipeline_progress.state */
#define CSD_PIPELINE_RUNNING	0
#define CSD_PIPELINE_DONE	1
#define CSD_PIPELINE_FAILED	2
#define CSD_PIPELINE_CANCELLED	3

/**
 * struct csd_stage_report - what one stage did so far
 * @function: function id
 * @drive: where it runs
 * @bytes_in: bytes that went in
 * @bytes_out: bytes that came out
 * @result: function-specific: filter: records out; checksum: CRC-32C; encrypt/decrypt: bytes
 * @result2: function-specific: filter: records in; checksum: bytes
 */
struct csd_stage_report {
	__u32 function;
	__u32 drive;
	__aligned_u64 bytes_in;
	__aligned_u64 bytes_out;
	__aligned_u64 result;
	__aligned_u64 result2;
};

/**
 * struct csd_pipeline_progress - CSD_IOC_PIPELINE_PROGRESS
 * @size: sizeof(struct csd_pipeline_progress)
 * @state: out, CSD_PIPELINE_*
 * @error: out, positive errno, 0 if none (ETIMEDOUT: the deadline passed; ENODEV: a drive
 *	was lost; EIO: storage error; EMSGSIZE: a record is too long; ENOSPC: the sink is full;
 *	ECANCELED: cancelled)
 * @status: out, NVMe status of the failure (SCT << 8 | SC)
 * @error_drive: out, where it failed, drive number, CSD_MEMBER_HOST: unknown
 * @error_stage: out, which stage failed, counted from 0, 0xffffffff: none (source or sink)
 * @error_offset: out, stream offset of the failure where known
 * @bytes_total: out, source_length
 * @bytes_in: out, bytes read from storage so far
 * @bytes_out: out, bytes of the result so far
 * @messages: out, IDC entries sent for it so far
 * @host_cpu_bytes: out, data bytes that the host's CPU touched for it
 * @elapsed_ns: out
 * @stage_count: out
 * @chunk_bytes: out
 * @stages: out, in order
 */
struct csd_pipeline_progress {
	__u32 size;
	__u32 state;
	__u32 error;
	__u32 status;
	__u32 error_drive;
	__u32 error_stage;
	__aligned_u64 error_offset;
	__aligned_u64 bytes_total;
	__aligned_u64 bytes_in;
	__aligned_u64 bytes_out;
	__aligned_u64 messages;
	__aligned_u64 host_cpu_bytes;
	__aligned_u64 elapsed_ns;
	__u32 stage_count;
	__u32 chunk_bytes;
	struct csd_stage_report stages[CSD_MAX_STAGES];
};

/**
 * struct csd_pipeline_info - CSD_IOC_PIPELINE_INFO
 *
 * Walks the running and the recently ended pipelines (the last 16).
 *
 * @size: sizeof(struct csd_pipeline_info)
 * @mesh: out
 * @after: in, the lowest pipeline number above this one is reported; ENXIO if there is none
 * @pipeline: out, its number
 * @progress: out, @progress.size included
 */
struct csd_pipeline_info {
	__u32 size;
	__u32 mesh;
	__aligned_u64 after;
	__aligned_u64 pipeline;
	struct csd_pipeline_progress progress;
};

/**
 * struct csd_pipeline_cancel - CSD_IOC_PIPELINE_CANCEL
 * @size: sizeof(struct csd_pipeline_cancel)
 * @reserved: zero
 * @pipeline: in, its number
 *
 * Errors: ENXIO no such pipeline; EALREADY it has ended.
 */
struct csd_pipeline_cancel {
	__u32 size;
	__u32 reserved;
	__aligned_u64 pipeline;
};

/* csd_event.type */
#define CSD_EVENT_OVERFLOW		0	/* detail: events lost to this reader */
#define CSD_EVENT_DRIVE_BOUND		1
#define CSD_EVENT_DRIVE_GONE		2
#define CSD_EVENT_DRIVE_RESET		3	/* detail: 0 done, else errno */
#define CSD_EVENT_AEN			4	/* detail: DW0 of the request's completion */
#define CSD_EVENT_MESH_CREATED		5
#define CSD_EVENT_MESH_DESTROYED	6
#define CSD_EVENT_PEER_LOST		7
#define CSD_EVENT_RING_FAULT		8	/* peer: the sender; detail: reason */
#define CSD_EVENT_PIPELINE_DONE		9	/* detail: pipeline number */
/* drive: where it failed; peer: the first drive; detail: pipeline number */
#define CSD_EVENT_PIPELINE_FAILED	10
#define CSD_EVENT_PIPELINE_CANCELLED	11	/* detail: pipeline number */
/* drive, peer: the pair that was named; detail: the new epoch; status: 0, or why it failed */
#define CSD_EVENT_RING_RESET		12

/**
 * struct csd_event - what read(2) on /dev/csd returns, one or more whole ones
 *
 * Every open file has its own place in the bounded queue and sees what happens
 * after it was opened. poll(2) says POLLIN when there is one. read(2) blocks
 * unless O_NONBLOCK (EAGAIN); a buffer smaller than one event is EINVAL.
 *
 * @size: sizeof(struct csd_event)
 * @type: CSD_EVENT_*
 * @number: counts all events of this module, starts at 1, no gaps
 * @time_ns: CLOCK_REALTIME
 * @drive: drive number, or CSD_MEMBER_HOST
 * @mesh: mesh number, or CSD_MESH_NONE
 * @peer: other drive concerned, or CSD_MEMBER_HOST
 * @status: positive errno, 0 if none
 * @detail: see the type
 */
struct csd_event {
	__u32 size;
	__u32 type;
	__aligned_u64 number;
	__aligned_u64 time_ns;
	__u32 drive;
	__u32 mesh;
	__u32 peer;
	__u32 status;
	__aligned_u64 detail;
};

#endif /* _UAPI_LINUX_CSD_H */

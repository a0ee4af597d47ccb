// SPDX-License-Identifier: GPL-2.0
/*
 * Round trips through a char device, in ns, one a line:
 *
 *	rtt csd MESH DRIVE COUNT	a ping from the host to a drive of a mesh
 *	rtt nvme DEVICE COUNT		one admin command of the in-box driver
 *
 * The admin command is Get Features, Number of Queues (NVMe Base specification,
 * feature 07h), which moves no data.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "csd.h"

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int die(const char *what)
{
	perror(what);
	return 1;
}

int main(int argc, char **argv)
{
	int ours = argc == 5 && !strcmp(argv[1], "csd");
	int count, fd;
	int64_t *times;

	if (!ours && !(argc == 4 && !strcmp(argv[1], "nvme"))) {
		fprintf(stderr, "usage: rtt csd MESH DRIVE COUNT | rtt nvme DEVICE COUNT\n");
		return 2;
	}
	count = atoi(argv[argc - 1]);
	times = calloc(count, sizeof(*times));
	fd = open(ours ? "/dev/csd" : argv[2], O_RDWR);
	if (fd < 0 || !times)
		return die(ours ? "/dev/csd" : argv[2]);
	for (int i = 0; i < count; i++) {
		struct csd_msg_call msg = {
			.size = sizeof(msg), .from = CSD_MEMBER_HOST, .opcode = CSD_MSG_PING,
		};
		struct nvme_admin_cmd admin = { .opcode = 0x0a, .cdw10 = 0x07 };
		int64_t begun;
		int failed;

		if (ours) {
			msg.mesh = atoi(argv[2]);
			msg.to = atoi(argv[3]);
		}
		begun = now_ns();
		failed = ours ? ioctl(fd, CSD_IOC_MSG_CALL, &msg) : ioctl(fd, NVME_IOCTL_ADMIN_CMD, &admin);
		times[i] = now_ns() - begun;
		if (failed)
			return die("ioctl");
	}
	for (int i = 0; i < count; i++)
		printf("%lld\n", (long long)times[i]);
	return 0;
}

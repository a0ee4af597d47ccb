// SPDX-License-Identifier: GPL-2.0
/*
 * Looks into the PMR (BAR4) of an NVMe drive that no driver has, through sysfs,
 * independent of csd:
 *
 *	bar ADDRESS fill SEED	fill it with a pattern
 *	bar ADDRESS check SEED	status 0 if all of it is that pattern, else 1 and where not
 *	bar ADDRESS zero
 *	bar ADDRESS find TEXT	count how often TEXT is in it
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* NVMe Base specification, "Controller Properties" */
#define PMRCTL	0xe04
#define PMRSTS	0xe08
#define PMRCTL_EN	1
#define PMRSTS_NRDY	(1 << 8)

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void *map(const char *address, const char *name, size_t *bytes)
{
	char path[256];
	struct stat stat;
	void *at;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", address, name);
	fd = open(path, O_RDWR);
	if (fd < 0 || fstat(fd, &stat))
		die(path);
	*bytes = stat.st_size;
	at = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		die(path);
	close(fd);
	return at;
}

static uint64_t pattern(uint64_t seed, uint64_t i)
{
	return (i + seed) * 0x9e3779b97f4a7c15;
}

int main(int argc, char **argv)
{
	volatile uint32_t *registers;
	uint64_t *words, seed;
	size_t bytes, unused;
	char path[256];
	int fd, status = 0;

	if (argc < 3)
		return 2;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/enable", argv[1]);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, "1", 1) != 1)
		die(path);
	close(fd);
	registers = map(argv[1], "resource0", &unused);
	registers[PMRCTL / 4] = PMRCTL_EN;
	for (int i = 0; registers[PMRSTS / 4] & PMRSTS_NRDY; i++) {
		if (i > 1000) {
			fprintf(stderr, "the PMR does not get ready\n");
			return 2;
		}
		usleep(1000);
	}
	words = map(argv[1], "resource4", &bytes);
	seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
	if (!strcmp(argv[2], "fill")) {
		for (size_t i = 0; i < bytes / 8; i++)
			words[i] = pattern(seed, i);
	} else if (!strcmp(argv[2], "zero")) {
		memset(words, 0, bytes);
	} else if (!strcmp(argv[2], "check")) {
		for (size_t i = 0; i < bytes / 8 && !status; i++) {
			if (words[i] != pattern(seed, i)) {
				printf("changed at %#zx of %#zx\n", i * 8, bytes);
				status = 1;
			}
		}
	} else if (!strcmp(argv[2], "find") && argc > 3) {
		size_t len = strlen(argv[3]), count = 0;
		char *at = (char *)words, *end = at + bytes;

		while ((at = memmem(at, end - at, argv[3], len))) {
			if (getenv("WHERE"))
				fprintf(stderr, "%#zx\n", (size_t)(at - (char *)words));
			count++;
			at += len;
		}
		printf("%zu\n", count);
	} else {
		status = 2;
	}
	registers[PMRCTL / 4] = 0;
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, "0", 1) != 1)
		die(path);
	return status;
}

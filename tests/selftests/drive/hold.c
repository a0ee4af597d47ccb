// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a block device exclusively, as a volume manager does, until stdin ends.
 * Says "held" when it has it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char byte;

	if (argc != 2)
		return 2;
	if (open(argv[1], O_RDONLY | O_EXCL) < 0) {
		perror(argv[1]);
		return 1;
	}
	puts("held");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}

# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The cache: products (a sysroot, a kernel tree, an initramfs) that are costly
# to make, each in a folder named by a key of its inputs.  A product is made in
# a `.partial` folder under a lock and renamed when it is whole, so that an
# interrupted build is never mistaken for a finished one.  Sourced; owns nothing
# but the naming and the locking, and never the making.

CSD_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
CSD_CACHE=${CSD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/csd}
export CSD_TOP CSD_CACHE

say() { printf '  %-8s %s\n' "$1" "${*:2}" >&2; }

die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# key_of STRING|FILE...: the first 16 hex digits of a SHA-256 over the arguments;
# an argument that names a file stands for its contents.
key_of() {
	local a
	for a; do
		if [ -f "$a" ]; then sha256sum <"$a"; else printf '%s\n' "$a"; fi
	done | sha256sum | cut -c1-16
}

# product NAME KEY MAKER [ARG...]: prints the folder of the product NAME-KEY.
# Where it is missing, `MAKER ARG... FOLDER` is run on an empty folder; its
# output goes to FOLDER.log, whose tail is shown when it fails.
product() {
	local name=$1 key=$2 dir=$CSD_CACHE/$1-$2
	shift 2
	if [ ! -d "$dir" ]; then
		mkdir -p "$CSD_CACHE" || die "cannot make the cache folder $CSD_CACHE"
		(
			flock -n 9 || {
				say WAIT "another build of $name"
				flock 9
			}
			[ -d "$dir" ] && exit 0
			rm -rf --one-file-system "$dir.partial"
			mkdir "$dir.partial" || exit 1
			# The maker has the lock too: killed alone, this shell must not
			# free it while the maker still writes there.
			if ! "$@" "$dir.partial" >"$dir.log" 2>&1; then
				tail -n 25 "$dir.log" >&2
				printf '%s: making %s failed; the whole log is %s\n' \
					"${0##*/}" "$name" "$dir.log" >&2
				exit 1
			fi
			mv -T "$dir.partial" "$dir"
		) 9>"$CSD_CACHE/$name.lock" || exit 1
	fi
	printf '%s\n' "$dir"
}

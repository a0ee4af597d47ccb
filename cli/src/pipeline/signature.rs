// SPDX-License-Identifier: GPL-2.0

//! What is on a namespace already: file systems, volumes, partition tables.
//!
//! Owns the table of signatures and where they stand. It works on bytes that somebody else has
//! read; it is a guard against a slip of the hand, not a file system checker, and a namespace
//! without a signature may still hold data.

/// Bytes from the start of a namespace that [`at_start`] wants to see: the ZFS uberblocks end there.
pub const START_LEN: u64 = 256 << 10;

/// Bytes up to the end of a namespace that [`at_end`] wants to see: version 0.90 md superblocks are in
/// the last 128 KiB.
pub const END_LEN: u64 = 128 << 10;

/// A signature: these bytes at this offset, and what it means.
struct Signature {
    name: &'static str,
    offset: usize,
    magic: &'static [u8],
}

const fn at(offset: usize, magic: &'static [u8], name: &'static str) -> Signature {
    Signature {
        name,
        offset,
        magic,
    }
}

/// Offsets are from the start of a device. Sources: the on-disk format headers of Linux 7.3 (named
/// by path), or, where there is none, the format's own documentation.
const SIGNATURES: &[Signature] = &[
    // fs/ext4/ext4.h: struct ext4_super_block at 1024, s_magic at 0x38 of it
    at(0x438, b"\x53\xef", "ext2, ext3 or ext4"),
    // fs/xfs/libxfs/xfs_format.h: sb_magicnum, XFS_SB_MAGIC
    at(0, b"XFSB", "XFS"),
    // fs/btrfs/fs.h: BTRFS_SUPER_INFO_OFFSET 64 KiB; include/uapi/linux/btrfs_tree.h: magic at 0x40
    at(0x1_0040, b"_BHRfS_M", "btrfs"),
    // Microsoft FAT specification: BS_FilSysType of FAT12/16 at 54, of FAT32 at 82
    at(54, b"FAT12   ", "FAT"),
    at(54, b"FAT16   ", "FAT"),
    at(82, b"FAT32   ", "FAT"),
    // fs/exfat/exfat_raw.h: struct boot_sector, fs_name
    at(3, b"EXFAT   ", "exFAT"),
    // fs/ntfs3/ntfs.h: struct NTFS_BOOT, system_id
    at(3, b"NTFS    ", "NTFS"),
    // BitLocker volumes take the place of NTFS's name
    at(3, b"-FVE-FS-", "BitLocker"),
    // include/linux/swap.h: union swap_header, the last 10 bytes of the first page (4 to 64 KiB)
    at(0x0ff6, b"SWAPSPACE2", "swap"),
    at(0x1ff6, b"SWAPSPACE2", "swap"),
    at(0x3ff6, b"SWAPSPACE2", "swap"),
    at(0x7ff6, b"SWAPSPACE2", "swap"),
    at(0xfff6, b"SWAPSPACE2", "swap"),
    // LUKS1 and LUKS2 on-disk format specifications: magic at 0
    at(0, b"LUKS\xba\xbe", "LUKS"),
    // lvm2, lib/label/label.h: LABEL_ID in one of the first four sectors
    at(0x000, b"LABELONE", "LVM"),
    at(0x200, b"LABELONE", "LVM"),
    at(0x400, b"LABELONE", "LVM"),
    at(0x600, b"LABELONE", "LVM"),
    // UEFI specification, "GPT Header": LBA 1, for blocks of 512 and 4096 bytes
    at(0x200, b"EFI PART", "GPT"),
    at(0x1000, b"EFI PART", "GPT"),
    // include/uapi/linux/raid/md_p.h: MD_SB_MAGIC, versions 1.1 (at 0) and 1.2 (at 4 KiB)
    at(0, b"\xfc\x4e\x2b\xa9", "md"),
    at(0x1000, b"\xfc\x4e\x2b\xa9", "md"),
    // fs/squashfs/squashfs_fs.h: SQUASHFS_MAGIC
    at(0, b"hsqs", "squashfs"),
    // fs/erofs/erofs_fs.h: EROFS_SUPER_MAGIC_V1 at EROFS_SUPER_OFFSET
    at(0x400, b"\xe2\xe1\xf5\xe0", "EROFS"),
    // include/linux/f2fs_fs.h: F2FS_SUPER_OFFSET, F2FS_SUPER_MAGIC in include/uapi/linux/magic.h
    at(0x400, b"\x10\x20\xf5\xf2", "F2FS"),
    // drivers/md/bcache/bcache_ondisk.h: SB_SECTOR 8, magic at 24 of it; bcachefs shares the place
    at(
        0x1018,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "bcache",
    ),
    at(
        0x1018,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        "bcachefs",
    ),
    // fs/jfs/jfs_filsys.h: SUPER1_OFF; fs/jfs/jfs_superblock.h: JFS_MAGIC
    at(0x8000, b"JFS1", "JFS"),
    // include/uapi/linux/nilfs2_ondisk.h: NILFS_SB_OFFSET_BYTES, s_magic at 6 of it
    at(0x406, b"\x34\x34", "NILFS2"),
    // include/uapi/linux/gfs2_ondisk.h: GFS2_MAGIC at GFS2_SB_ADDR (128 sectors)
    at(0x1_0000, b"\x01\x16\x19\x70", "GFS2"),
    // fs/ocfs2/ocfs2_fs.h: OCFS2_SUPER_BLOCK_BLKNO 2, for blocks of 512 to 4096 bytes
    at(0x400, b"OCFSV2", "OCFS2"),
    at(0x800, b"OCFSV2", "OCFS2"),
    at(0x1000, b"OCFSV2", "OCFS2"),
    at(0x2000, b"OCFSV2", "OCFS2"),
    // ECMA-119 (ISO 9660): standard identifier in the volume descriptor at sector 16
    at(0x8001, b"CD001", "ISO 9660"),
    // ECMA-167: volume structure descriptors from sector 16 on
    at(0x8001, b"BEA01", "UDF"),
    // fs/hfsplus/hfsplus_raw.h: volume header at 1024
    at(0x400, b"H+\x00\x04", "HFS+"),
    at(0x400, b"HX\x00\x05", "HFS+"),
    // Apple File System Reference: nx_magic at 32
    at(0x20, b"NXSB", "APFS"),
    // ceph, src/os/bluestore: the label begins with this text
    at(0, b"bluestore block device", "Ceph BlueStore"),
    // PC boot sector (UEFI specification, "Legacy MBR"): last, as several of the above have it too
    at(0x1fe, b"\x55\xaa", "MBR or boot sector"),
];

/// Where the ring of ZFS uberblocks begins and ends in the first label, and how far they are apart
/// at least. Sun "ZFS On-Disk Specification", 1.3; magic 0x00bab10c in either byte order.
const ZFS_RING: (usize, usize, usize) = (128 << 10, 256 << 10, 1 << 10);
const ZFS_MAGIC: [[u8; 8]; 2] = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()];

fn has(bytes: &[u8], offset: usize, magic: &[u8]) -> bool {
    bytes
        .get(offset..)
        .is_some_and(|rest| rest.starts_with(magic))
}

/// What the first bytes of a namespace, or of a place in it, are the signature of.
pub fn at_start(bytes: &[u8]) -> Option<&'static str> {
    let listed = SIGNATURES
        .iter()
        .find(|signature| has(bytes, signature.offset, signature.magic))
        .map(|signature| signature.name);
    let zfs = || {
        let (start, end, step) = ZFS_RING;
        let ring = (start..end).step_by(step);
        let found = |offset: &usize| ZFS_MAGIC.iter().any(|magic| has(bytes, *offset, magic));
        ring.into_iter().find(found).map(|_| "ZFS")
    };
    // The boot sector's signature says least: ZFS goes before it.
    match listed {
        Some("MBR or boot sector") | None => zfs().or(listed),
        other => other,
    }
}

/// What the last bytes of a namespace of `size` bytes are the signature of.
pub fn at_end(bytes: &[u8], size: u64) -> Option<&'static str> {
    let begins = size.checked_sub(bytes.len() as u64)?;
    let found = |offset: Option<u64>, magic: &[u8]| {
        offset
            .and_then(|offset| offset.checked_sub(begins))
            .and_then(|offset| usize::try_from(offset).ok())
            .is_some_and(|offset| has(bytes, offset, magic))
    };
    // include/uapi/linux/raid/md_p.h: MD_NEW_SIZE_SECTORS for 0.90; drivers/md/md.c,
    // super_1_load(): 8 KiB before the end, rounded down to 4 KiB, for 1.0.
    let md_0_90 = (size & !0xffff).checked_sub(0x1_0000);
    let md_1_0 = size.checked_sub(0x2000).map(|offset| offset & !0xfff);
    let gpt_512 = size.checked_sub(512);
    let gpt_4096 = size.checked_sub(4096);
    // Intel Matrix Storage Manager metadata: the second to last sector
    let imsm = size.checked_sub(1024);
    let md: &[u8] = b"\xfc\x4e\x2b\xa9";
    if found(md_0_90, md) || found(md_1_0, md) {
        Some("md")
    } else if found(gpt_512, b"EFI PART") || found(gpt_4096, b"EFI PART") {
        Some("GPT (backup)")
    } else if found(imsm, b"Intel Raid ISM Cfg Sig. ") {
        Some("Intel RAID")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(len: usize, offset: usize, magic: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes[offset..offset + magic.len()].copy_from_slice(magic);
        bytes
    }

    #[test]
    fn nothing_is_found_in_zeros_or_in_a_table_of_text() {
        assert_eq!(at_start(&[0; 4096]), None);
        assert_eq!(at_start(&[]), None);
        assert_eq!(
            at_start(&b"0041;LATIN CAPITAL LETTER A;Lu;0;L;;;;;N;;;;0061;\n".repeat(6000)),
            None
        );
        assert_eq!(at_end(&[0; 4096], 4096), None);
    }

    #[test]
    fn a_signature_that_is_cut_off_is_none() {
        assert_eq!(at_start(&with(4, 0, b"XFSB")), Some("XFS"));
        assert_eq!(at_start(b"XFS"), None);
    }

    #[test]
    fn a_file_system_is_named_before_the_boot_sector_it_has() {
        let mut fat = with(512, 0x1fe, b"\x55\xaa");
        assert_eq!(at_start(&fat), Some("MBR or boot sector"));
        fat[82..90].copy_from_slice(b"FAT32   ");
        assert_eq!(at_start(&fat), Some("FAT"));
    }

    #[test]
    fn any_uberblock_of_the_ring_tells_zfs_in_either_byte_order() {
        assert_eq!(
            at_start(&with(256 << 10, 128 << 10, b"\x0c\xb1\xba\0\0\0\0\0")),
            Some("ZFS")
        );
        assert_eq!(
            at_start(&with(256 << 10, 255 << 10, b"\0\0\0\0\0\xba\xb1\x0c")),
            Some("ZFS")
        );
    }

    #[test]
    fn md_keeps_its_old_superblocks_at_the_end() {
        // 1 MiB and 12 KiB: version 0.90 at 1 MiB - 64 KiB, version 1.0 at 1 MiB + 4 KiB.
        let size = (1 << 20) + 12_288;
        let begins = size - 131_072;
        let magic = b"\xfc\x4e\x2b\xa9";
        assert_eq!(
            at_end(&with(131_072, 983_040 - begins, magic), size as u64),
            Some("md")
        );
        assert_eq!(
            at_end(&with(131_072, 1_052_672 - begins, magic), size as u64),
            Some("md")
        );
        assert_eq!(
            at_end(&with(131_072, 1_052_673 - begins, magic), size as u64),
            None
        );
    }
}

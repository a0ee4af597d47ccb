// SPDX-License-Identifier: GPL-2.0
/*
 * AES-256-CTR for the module: the kernel's own AES library.
 *
 * In C because the key structure's layout and the transparent union that
 * aes_ctr() takes are beyond Rust's bindings. Owns no state: a prepared key
 * belongs to rust/csd/sys/crypto.rs, which frees it here, zeroed.
 */
#include <crypto/aes-ctr.h>
#include <linux/kconfig.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/types.h>

#if !IS_ENABLED(CONFIG_CRYPTO_LIB_AES_CTR)
#error "csd needs the AES-CTR library: enable CONFIG_CRYPTO_CTR in this kernel"
#endif

struct aes_enckey *csd_cipher_new(const u8 *key, size_t len);
void csd_cipher_free(struct aes_enckey *cipher);
void csd_cipher_ctr(const struct aes_enckey *cipher, const u8 *counter,
		    u8 *data, size_t len);
void csd_wipe(void *data, size_t len);

/* NULL: no memory, or a key length that AES does not have. */
struct aes_enckey *csd_cipher_new(const u8 *key, size_t len)
{
	struct aes_enckey *cipher = kzalloc(sizeof(*cipher), GFP_KERNEL);

	if (cipher && aes_prepareenckey(cipher, key, len)) {
		kfree_sensitive(cipher);
		return NULL;
	}
	return cipher;
}

void csd_cipher_free(struct aes_enckey *cipher)
{
	kfree_sensitive(cipher);
}

/* XORs @data with the key stream that starts at @counter (16 bytes, big endian). */
void csd_cipher_ctr(const struct aes_enckey *cipher, const u8 *counter,
		    u8 *data, size_t len)
{
	u8 block[AES_BLOCK_SIZE];

	memcpy(block, counter, sizeof(block));
	aes_ctr(data, data, len, block, cipher);
}

void csd_wipe(void *data, size_t len)
{
	memzero_explicit(data, len);
}

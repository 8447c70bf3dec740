/* header.c: the 32 bytes every metadata object begins with. */
#include "format/format_int.h"

const char magic_super[8] = {'B', 'L', 'Y', 'S', 'U', 'P', 'E', 'R'};
const char magic_manifest[8] = {'B', 'L', 'Y', 'M', 'A', 'N', 'I', 'F'};
const char magic_catalog[8] = {'B', 'L', 'Y', 'C', 'A', 'T', 'L', 'G'};
const char magic_leaf[8] = {'B', 'L', 'Y', 'L', 'E', 'A', 'F', '\0'};

void hash_put(uint8_t *out, struct hash128 h)
{
        put_u64(out, h.lo);
        put_u64(out + 8, h.hi);
}

struct hash128 hash_get(const uint8_t *in)
{
        return (struct hash128){get_u64(in), get_u64(in + 8)};
}

struct hash128 header_seal(uint8_t *object, const char magic[8], uint32_t bytes)
{
        memcpy(object, magic, 8);
        put_u32(object + 8, FORMAT_VERSION);
        put_u32(object + 12, bytes);
        struct hash128 sum = hash_object(object, bytes);
        hash_put(object + HEADER_SUM, sum);
        return sum;
}

int header_check(const uint8_t *object, uint64_t bytes, const char magic[8], const char *what)
{
        if (bytes < HEADER_BYTES)
                return err_set(BELAY_E_DATA, "%s is cut off after %llu bytes", what,
                               (unsigned long long)bytes);
        if (memcmp(object, magic, 8) != 0)
                return err_set(BELAY_E_FORMAT, "%s does not begin with its mark", what);
        if (get_u32(object + 12) != bytes)
                return err_set(BELAY_E_DATA, "%s says it has %u bytes, it should have %llu", what,
                               get_u32(object + 12), (unsigned long long)bytes);
        if (!hash_equal(hash_object(object, bytes), hash_get(object + HEADER_SUM)))
                return err_set(BELAY_E_DATA, "%s: its checksum is wrong", what);
        /* After the checksum: a flipped bit must not pass for a newer format. */
        uint32_t version = get_u32(object + 8);
        if (version > FORMAT_VERSION)
                return err_set(
                        BELAY_E_FORMAT,
                        "%s has format version %u, this library reads up to %u; use a newer Belay",
                        what, version, FORMAT_VERSION);
        if (version == 0)
                return err_set(BELAY_E_DATA, "%s has format version 0", what);
        return 0;
}

bool placement_legal(uint64_t offset, uint64_t bytes, uint64_t pool_bytes)
{
        if (offset < FIRST_SLOT * SLOT_BYTES || offset > pool_bytes || bytes > pool_bytes - offset)
                return false;
        if (bytes >= SLOT_BYTES)
                return offset % SLOT_BYTES == 0;
        return offset % SMALL_ALIGN == 0 && offset % SLOT_BYTES + bytes <= SLOT_BYTES;
}

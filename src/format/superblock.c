/* superblock.c: format.md §3. */
#include "format/format_int.h"

enum { AT_ID = 32, AT_GENERATION = 48, AT_BYTES = 56, AT_NEXT = 64, AT_SLOT = 72, AT_COUNT = 76 };
enum {
        AT_CREATED = 80,
        AT_INCOMPATIBLE = 88,
        AT_HELD = 104,
        AT_VERSIONS = 128,
        VERSION_BYTES = 48,
        AT_CONFIRMED = 3200,
        AT_INCARNATION = 3208,
        AT_RANK = 3216,
        AT_MEMBERS = 3220,
        AT_JOB_LENGTH = 3224,
        AT_JOB = 3228,
};

void superblock_encode(const struct superblock *s, uint8_t out[SUPER_BYTES])
{
        memset(out, 0, SUPER_BYTES);
        memcpy(out + AT_ID, s->pool_id, sizeof(s->pool_id));
        put_u64(out + AT_GENERATION, s->generation);
        put_u64(out + AT_BYTES, s->pool_bytes);
        put_u64(out + AT_NEXT, s->next_version);
        put_u32(out + AT_SLOT, SLOT_BYTES);
        put_u32(out + AT_COUNT, s->version_count);
        put_u64(out + AT_CREATED, s->created_ns);
        put_u64(out + AT_HELD, s->held_bytes);
        for (uint32_t i = 0; i < s->version_count; i++) {
                const struct version_entry *v = &s->versions[i];
                uint8_t *p = out + AT_VERSIONS + i * VERSION_BYTES;
                put_u64(p, v->version);
                put_u64(p + 8, v->manifest.offset);
                put_u32(p + 16, v->manifest_bytes);
                put_u32(p + 20, v->flags);
                put_u64(p + 24, v->time_ns);
                hash_put(p + 32, v->manifest.checksum);
        }
        put_u64(out + AT_CONFIRMED, s->confirmed);
        put_u64(out + AT_INCARNATION, s->place.incarnation);
        put_u32(out + AT_RANK, s->place.rank);
        put_u32(out + AT_MEMBERS, s->place.members);
        put_u32(out + AT_JOB_LENGTH, (uint32_t)strlen(s->job));
        memcpy(out + AT_JOB, s->job, strlen(s->job));
        header_seal(out, magic_super, SUPER_BYTES);
}

static int entry_decode(const uint8_t *p, uint64_t after, const struct superblock *s,
                        struct version_entry *v)
{
        v->version = get_u64(p);
        v->manifest.offset = get_u64(p + 8);
        v->manifest_bytes = get_u32(p + 16);
        v->flags = get_u32(p + 20);
        v->time_ns = get_u64(p + 24);
        v->manifest.checksum = hash_get(p + 32);
        if (v->version <= after || v->version >= s->next_version)
                return err_set(BELAY_E_DATA, "superblock: version %llu is out of order",
                               (unsigned long long)v->version);
        if (v->manifest_bytes < FLAT_HEAD_BYTES || v->manifest_bytes > MAX_MANIFEST_BYTES ||
            !placement_legal(v->manifest.offset, v->manifest_bytes, s->pool_bytes))
                return err_set(BELAY_E_DATA,
                               "superblock: the manifest of version %llu lies outside the pool",
                               (unsigned long long)v->version);
        return 0;
}

int job_place_check(const struct job_place *p, const char *who)
{
        if (p->members ? p->rank >= p->members : p->rank || p->incarnation)
                return err_set(BELAY_E_DATA, "%s: rank %u of %u members is impossible", who,
                               p->rank, p->members);
        return 0;
}

/* What format 1 does not have. */
static int job_decode(const uint8_t *in, struct superblock *s)
{
        uint32_t length = get_u32(in + AT_JOB_LENGTH);
        s->confirmed = get_u64(in + AT_CONFIRMED);
        s->place = (struct job_place){get_u64(in + AT_INCARNATION), get_u32(in + AT_RANK),
                                      get_u32(in + AT_MEMBERS)};
        if (s->confirmed >= s->next_version)
                return err_set(BELAY_E_DATA, "superblock: version %llu cannot be confirmed yet",
                               (unsigned long long)s->confirmed);
        if (length > BELAY_MAX_NAME)
                return err_set(BELAY_E_DATA, "superblock: the job's name has %u bytes", length);
        memcpy(s->job, in + AT_JOB, length);
        s->job[length] = '\0';
        if (strlen(s->job) != length || (length && name_check(s->job)))
                return err_set(BELAY_E_DATA, "superblock: the job's name is not valid");
        return job_place_check(&s->place, "superblock");
}

int superblock_decode(const uint8_t in[SUPER_BYTES], struct superblock *out)
{
        int rc = header_check(in, SUPER_BYTES, magic_super, "superblock");
        if (rc)
                return rc;
        uint64_t features = get_u64(in + AT_INCOMPATIBLE);
        if (features)
                return err_set(
                        BELAY_E_FORMAT,
                        "superblock: the pool uses features (0x%llx) this library does not know; "
                        "use a newer Belay",
                        (unsigned long long)features);
        struct superblock s = {
                .generation = get_u64(in + AT_GENERATION),
                .pool_bytes = get_u64(in + AT_BYTES),
                .next_version = get_u64(in + AT_NEXT),
                .created_ns = get_u64(in + AT_CREATED),
                .held_bytes = get_u64(in + AT_HELD),
                .version_count = get_u32(in + AT_COUNT),
                .format = header_version(in),
        };
        memcpy(s.pool_id, in + AT_ID, sizeof(s.pool_id));
        if (get_u32(in + AT_SLOT) != SLOT_BYTES)
                return err_set(BELAY_E_FORMAT, "superblock: slot size %u is not %u",
                               get_u32(in + AT_SLOT), SLOT_BYTES);
        if (s.pool_bytes % SLOT_BYTES || s.pool_bytes > MAX_POOL_BYTES ||
            s.pool_bytes < FIRST_SLOT * SLOT_BYTES)
                return err_set(BELAY_E_DATA, "superblock: pool size %llu is impossible",
                               (unsigned long long)s.pool_bytes);
        if (s.generation == 0 || s.next_version == 0)
                return err_set(BELAY_E_DATA, "superblock: generation or next version is 0");
        if (s.version_count > MAX_VERSIONS)
                return err_set(BELAY_E_DATA, "superblock: %u versions, at most %u are possible",
                               s.version_count, MAX_VERSIONS);
        uint64_t after = 0;
        for (uint32_t i = 0; i < s.version_count; i++) {
                rc = entry_decode(in + AT_VERSIONS + i * VERSION_BYTES, after, &s, &s.versions[i]);
                if (rc)
                        return rc;
                after = s.versions[i].version;
        }
        rc = header_version(in) == 1 ? 0 : job_decode(in, &s);
        if (rc)
                return rc;
        *out = s;
        return 0;
}

int superblock_guess(uint8_t in[SUPER_BYTES], struct superblock *out)
{
        memcpy(in, magic_super, sizeof(magic_super));
        put_u32(in + 12, SUPER_BYTES);
        hash_put(in + HEADER_SUM, hash_object(in, SUPER_BYTES));
        return superblock_decode(in, out);
}

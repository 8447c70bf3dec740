/* pin.c: a reader keeps a version from being given up.
 *
 * A pin is a shared lock on one byte of the pool file, far behind its end: PIN_BASE + the number of
 * the version. The kernel takes it back when the process ends, however it ends. A writer that is
 * about to give a version up asks for an exclusive lock on that byte.
 *
 * A pin that comes too late must not count: after the lock is held, the list is read again. If it
 * still has the version, every writer that gives it up later meets the lock. */
#include "store/store_int.h"
#include <errno.h>
#include <stdio.h>

#define PIN_BASE (UINT64_C(1) << 62)

static struct pin *find(struct pool *p, uint64_t version)
{
        for (uint32_t i = 0; i < p->pin_count; i++)
                if (p->pins[i].version == version)
                        return &p->pins[i];
        return NULL;
}

/* How long a reader waits for a writer that has seized the version. The version is gone only when
 * the list says so: the writer may just want to know whom to blame, or not get its list written. */
#define WAIT_MS 512u

/* 0 with the lock held. */
static int lock(struct pool *p, const struct version *v)
{
        for (uint64_t pause = 1;; pause *= 2) {
                int rc = plat->lock_byte(p->media->fd, PIN_BASE + v->number, PLAT_LOCK_SHARED);
                if (rc == 0)
                        return 0;
                int listed = rc == -EAGAIN ? pool_lists(p, v) : 1;
                if (listed <= 0)
                        return listed ? listed : pool_gone(p, v->number);
                /* Where flock() locks the bytes of a file (NFS), that of the writer is in the way. */
                if (rc != -EAGAIN || pause > WAIT_MS)
                        return err_set(rc, "version %llu of pool '%s' cannot be pinned: %s",
                                       (unsigned long long)v->number, p->label,
                                       rc == -EAGAIN ? "another lock is in the way"
                                                     : code_text(rc));
                plat->sleep_ns(pause * UINT64_C(1000000));
        }
}

/* 0 with the version pinned. */
static int take(struct pool *p, const struct version *v)
{
        int rc = lock(p, v);
        if (rc)
                return rc;
        int listed = pool_lists(p, v);
        if (listed > 0)
                return 0;
        (void)plat->lock_byte(p->media->fd, PIN_BASE + v->number, PLAT_UNLOCK);
        return listed ? listed : pool_gone(p, v->number);
}

int pool_pin(struct pool *p, uint64_t version)
{
        struct pin *pin = find(p, version);
        if (pin) {
                pin->count++;
                return 0;
        }
        const struct version *v = pool_find_version(p, version);
        if (!v)
                return err_set(-ENOENT, "pool '%s' has no version %llu", p->label,
                               (unsigned long long)version);
        if (version >= PIN_BASE || p->pin_count == MAX_PINS)
                return err_set(-ENOSPC, "version %llu of pool '%s' cannot be pinned: %s",
                               (unsigned long long)version, p->label,
                               p->pin_count == MAX_PINS ? "too many are"
                                                        : "its number is too high");
        int rc = take(p, v);
        if (rc == 0)
                p->pins[p->pin_count++] = (struct pin){version, 1};
        return rc;
}

/* ---- the writer's side: a version that is to leave the list is seized first ---- */

bool pin_seize(struct pool *p, const struct version *v)
{
        if (v->number >= PIN_BASE)
                return true;
        /* Where files cannot be locked so, nobody has a pin. */
        return plat->lock_byte(p->media->fd, PIN_BASE + v->number, PLAT_LOCK_EXCLUSIVE) != -EAGAIN;
}

void pin_let_go(struct pool *p, const struct version *v)
{
        if (v->number < PIN_BASE)
                (void)plat->lock_byte(p->media->fd, PIN_BASE + v->number, PLAT_UNLOCK);
}

const char *pin_blame(struct pool *p, uint64_t most, char *text, size_t bytes)
{
        text[0] = '\0';
        for (uint32_t i = 0; i < p->version_count; i++) {
                const struct version *v = p->versions[i];
                if (listing_wants(p, i, most))
                        continue;
                if (pin_seize(p, v)) {
                        pin_let_go(p, v);
                        continue;
                }
                int holder = plat->byte_holder(p->media->fd, PIN_BASE + v->number);
                if (holder > 0)
                        snprintf(text, bytes, "; process %d holds version %llu, which it reads",
                                 holder, (unsigned long long)v->number);
                else
                        snprintf(text, bytes,
                                 "; another process holds version %llu, which it reads",
                                 (unsigned long long)v->number);
                return text;
        }
        return text;
}

static void give_back(struct pool *p, struct pin *pin)
{
        (void)plat->lock_byte(p->media->fd, PIN_BASE + pin->version, PLAT_UNLOCK);
        *pin = p->pins[--p->pin_count];
}

void pool_unpin(struct pool *p, uint64_t version)
{
        struct pin *pin = find(p, version);
        if (pin && --pin->count == 0)
                give_back(p, pin);
}

/* Closing the file would not do: a child that was made just now may have it open, too. */
void pin_end_all(struct pool *p)
{
        while (p->pin_count)
                give_back(p, &p->pins[p->pin_count - 1]);
}

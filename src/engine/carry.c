/* carry.c: the names of dropped regions, sorted by their hash. */
#include "engine/carry.h"
#include <errno.h>

static int make_room(struct carry *k, struct dropped_names *n, uint32_t count)
{
        if (n->count + count <= n->capacity)
                return 0;
        uint32_t capacity = (n->count + count) * 2;
        void *list = budget_resize(k->budget, n->list, capacity * sizeof(*n->list), "a name");
        if (!list)
                return -ENOMEM;
        n->list = list;
        n->capacity = capacity;
        return 0;
}

/* There is room. */
static void add_name(struct dropped_names *n, struct name_entry name)
{
        size_t at = names_find(n->list, n->count, name.key);
        memmove(n->list + at + 1, n->list + at, (n->count - at) * sizeof(*n->list));
        n->list[at] = name;
        n->count++;
}

int carry_drop(struct carry *k, const char *name)
{
        size_t bytes = strlen(name) + 1;
        if (make_room(k, &k->next, 1))
                return -ENOMEM;
        char *copy = budget_alloc(k->budget, bytes, "a name");
        if (!copy)
                return -ENOMEM;
        memcpy(copy, name, bytes);
        add_name(&k->next, (struct name_entry){hash_name(name), (uintptr_t)copy});
        return 0;
}

int carry_begin(struct carry *k)
{
        int rc = make_room(k, &k->gone, k->next.count);
        for (uint32_t i = 0; rc == 0 && i < k->next.count; i++)
                add_name(&k->gone, k->next.list[i]);
        k->next.count = rc ? k->next.count : 0;
        return rc;
}

static bool has_name(const struct dropped_names *n, const char *name)
{
        uint64_t key = hash_name(name);
        for (size_t i = names_find(n->list, n->count, key); i < n->count && n->list[i].key == key;
             i++)
                if (strcmp((const char *)n->list[i].position, name) == 0)
                        return true;
        return false;
}

bool carry_has_dropped(const struct carry *k, const char *name)
{
        return has_name(&k->gone, name) || has_name(&k->next, name);
}

void carry_over(const struct carry *k, struct draft *d)
{
        if (!k->always && !k->once)
                return;
        draft_carry(d);
        for (uint32_t i = 0; i < k->gone.count; i++)
                draft_leave_out(d, (const char *)k->gone.list[i].position);
}

static void forget(struct carry *k, struct dropped_names *n)
{
        for (uint32_t i = 0; i < n->count; i++)
                budget_free(k->budget, (char *)n->list[i].position);
        budget_free(k->budget, n->list);
        *n = (struct dropped_names){.list = NULL};
}

void carry_published(struct carry *k)
{
        forget(k, &k->gone);
}

void carry_destroy(struct carry *k)
{
        forget(k, &k->gone);
        forget(k, &k->next);
}

/* shelf.c: many small pieces of one size, as they come and go with the program's regions. They lie
 * side by side, 64 to a board: to free one costs a bit, where the allocator would look at the
 * pieces before and behind it, which no cache has any more. */
#include "plat/plat.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else /* nobody sees a use of what was given back */
#define ASAN_POISON_MEMORY_REGION(p, bytes)   ((void)(p), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(p, bytes) ((void)(p), (void)(bytes))
#endif

#define PIECES 64u

struct board {
        struct board *next, *before; /* of those with room */
        uint64_t room;               /* a bit for each free piece */
};

/* Each piece comes after the board that it lies on. */
static uint64_t piece_bytes(const struct shelf *s)
{
        return align_up(sizeof(struct board *) + s->bytes, 64);
}

static uint8_t *piece_at(const struct shelf *s, struct board *b, uint32_t i)
{
        return (uint8_t *)b + align_up(sizeof(*b), 64) + i * piece_bytes(s);
}

static uint64_t board_bytes(const struct shelf *s)
{
        return align_up(sizeof(struct board), 64) + PIECES * piece_bytes(s);
}

static void free_board(struct shelf *s, struct board *b)
{
        ASAN_UNPOISON_MEMORY_REGION(b, board_bytes(s));
        budget_free(s->budget, b);
}

void shelf_init(struct shelf *s, struct budget *budget, uint64_t bytes)
{
        *s = (struct shelf){.budget = budget, .bytes = bytes};
        pthread_mutex_init(&s->lock, NULL);
}

void shelf_close(struct shelf *s)
{
        if (s->with_room)
                free_board(s, s->with_room);
        s->with_room = NULL;
        pthread_mutex_destroy(&s->lock);
}

static void link_board(struct shelf *s, struct board *b)
{
        b->before = NULL;
        b->next = s->with_room;
        if (b->next)
                b->next->before = b;
        s->with_room = b;
}

static void unlink_board(struct shelf *s, struct board *b)
{
        *(b->before ? &b->before->next : &s->with_room) = b->next;
        if (b->next)
                b->next->before = b->before;
}

static struct board *board_with_room(struct shelf *s, const char *what)
{
        if (s->with_room)
                return s->with_room;
        struct board *b = budget_alloc(s->budget, board_bytes(s), what);
        if (b) {
                b->room = UINT64_MAX;
                link_board(s, b);
        }
        return b;
}

void *shelf_take(struct shelf *s, const char *what)
{
        pthread_mutex_lock(&s->lock);
        uint8_t *piece = NULL;
        struct board *b = board_with_room(s, what);
        if (b) {
                piece = piece_at(s, b, (uint32_t)__builtin_ctzll(b->room));
                b->room &= b->room - 1;
                if (b->room == 0)
                        unlink_board(s, b);
                memcpy(piece, &b, sizeof(b));
        }
        pthread_mutex_unlock(&s->lock);
        if (!piece)
                return NULL;
        ASAN_UNPOISON_MEMORY_REGION(piece + sizeof(b), s->bytes);
        return memset(piece + sizeof(b), 0, s->bytes);
}

void shelf_give(struct shelf *s, void *p)
{
        struct board *b;
        uint8_t *piece = (uint8_t *)p - sizeof(b);
        memcpy(&b, piece, sizeof(b));
        ASAN_POISON_MEMORY_REGION(p, s->bytes);
        pthread_mutex_lock(&s->lock);
        if (b->room == 0)
                link_board(s, b);
        b->room |= UINT64_C(1) << ((uint64_t)(piece - piece_at(s, b, 0)) / piece_bytes(s));
        /* An empty board goes, unless it is the only one. */
        bool empty = b->room == UINT64_MAX && (b->next || b->before);
        if (empty)
                unlink_board(s, b);
        pthread_mutex_unlock(&s->lock);
        if (empty)
                free_board(s, b);
}

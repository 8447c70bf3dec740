/* golden_content.c: parses the lists that make_golden.py writes. */
#include "golden_content.h"
#include "check.h"
#include "format/format.h"

enum { COLUMNS = 11 };

/* Splits at '|'; the columns lie in the line. Returns how many there are. */
static unsigned split(char *line, char *columns[COLUMNS])
{
        unsigned n = 0;
        line[strcspn(line, "\n")] = '\0';
        for (char *p = line; n < COLUMNS;) {
                columns[n++] = p;
                p = strchr(p, '|');
                if (!p)
                        break;
                *p++ = '\0';
        }
        return n;
}

static uint64_t number(const char *text)
{
        return strtoull(text, NULL, 10);
}

static uint32_t vector(const char *text, uint64_t out[BELAY_MAX_DIMS])
{
        uint32_t n = 0;
        for (const char *p = text; *p && n < BELAY_MAX_DIMS;) {
                char *end;
                out[n++] = strtoull(p, &end, 10);
                p = *end == 'x' ? end + 1 : end;
        }
        return n;
}

/* The same as pattern() of pool_builder.py. */
static void fill(uint8_t *to, uint64_t begin, uint64_t bytes, uint32_t seed)
{
        for (uint64_t i = 0; i < bytes; i++) {
                uint32_t x = (uint32_t)(begin + i) * 2654435761u + seed * 2246822519u + 374761393u;
                to[begin + i] = (uint8_t)(x >> 24);
        }
}

static void fill_region(struct golden_region *r, uint32_t seed, const char *ranges)
{
        r->data = malloc(r->bytes + 1);
        CHECK(r->data != NULL);
        fill(r->data, 0, r->bytes, seed);
        if (strncmp(ranges, "repeat:", 7) == 0) {
                uint64_t period = number(ranges + 7);
                for (uint64_t i = period; i < r->bytes; i++)
                        r->data[i] = r->data[i - period];
                return;
        }
        for (const char *p = ranges; *p;) {
                unsigned long long begin;
                unsigned long long bytes;
                unsigned other;
                int used = 0;
                CHECK_EQ(sscanf(p, "%llu+%llu:%u%n", &begin, &bytes, &other, &used), 3);
                CHECK(begin + bytes <= r->bytes);
                if (other)
                        fill(r->data, begin, bytes, other);
                else
                        memset(r->data + begin, 0, bytes);
                p += used;
                p += *p == ',';
        }
}

static uint32_t type_of(const char *name)
{
        for (uint32_t i = BELAY_RAW; i <= BELAY_C128; i++)
                if (strcmp(type_name(i), name) == 0)
                        return i;
        check_failed(__FILE__, __LINE__, "no type %s", name);
}

/* "start+dims;start+dims…" */
static void parse_boxes(struct golden_region *r, uint32_t ndims, char *text)
{
        char *rest = text;
        r->desc.global_ndims = ndims;
        for (char *one; (one = strsep(&rest, ";"));) {
                CHECK(r->desc.box_count < sizeof(r->boxes) / sizeof(r->boxes[0]));
                struct belay_box *b = &r->boxes[r->desc.box_count++];
                char *dims = strchr(one, '+');
                CHECK(dims != NULL);
                *dims++ = '\0';
                CHECK_EQ(vector(one, b->start), ndims);
                CHECK_EQ(vector(dims, b->dims), ndims);
        }
}

static void add_region(struct golden_version *v, char *columns[COLUMNS])
{
        v->regions = realloc(v->regions, (v->count + 1) * sizeof(*v->regions));
        CHECK(v->regions != NULL);
        struct golden_region *r = &v->regions[v->count++];
        memset(r, 0, sizeof(*r));
        CHECK(strlen(columns[2]) < sizeof(r->name));
        memcpy(r->name, columns[2], strlen(columns[2]) + 1);
        r->desc = (struct belay_desc){.size = sizeof(r->desc),
                                      .type = type_of(columns[3]),
                                      .element_bytes = (uint32_t)number(columns[4]),
                                      .block_bytes = (uint32_t)number(columns[5])};
        r->desc.ndims = vector(columns[6], r->desc.dims);
        uint32_t global_ndims = vector(columns[7], r->desc.global_dims);
        if (global_ndims)
                r->desc.flags = BELAY_GLOBAL;
        if (strchr(columns[8], '+'))
                parse_boxes(r, global_ndims, columns[8]);
        else if (global_ndims)
                CHECK_EQ(vector(columns[8], r->desc.global_start), r->desc.ndims);
        r->bytes = r->desc.element_bytes;
        for (uint32_t i = 0; i < r->desc.ndims; i++)
                r->bytes *= r->desc.dims[i];
        fill_region(r, (uint32_t)number(columns[9]), columns[10]);
}

void golden_load(const char *path, const char *name, struct golden_set *out)
{
        char line[4096];
        FILE *f = fopen(path, "re");
        if (!f)
                check_failed(__FILE__, __LINE__, "%s cannot be read", path);
        *out = (struct golden_set){.count = 0};
        while (fgets(line, sizeof(line), f)) {
                char *columns[COLUMNS];
                unsigned n = split(line, columns);
                if (line[0] == '#' || strcmp(columns[0], name) != 0)
                        continue;
                CHECK(n == 2 || n == COLUMNS);
                if (n == 2) {
                        CHECK(out->count < 64);
                        out->versions[out->count++].number = number(columns[1]);
                } else {
                        CHECK(out->count > 0);
                        CHECK_EQ(out->versions[out->count - 1].number, number(columns[1]));
                        add_region(&out->versions[out->count - 1], columns);
                }
        }
        fclose(f);
        /* The vector of regions moves while it grows; names are pointed to only now. */
        for (uint32_t i = 0; i < out->count; i++)
                for (uint32_t k = 0; k < out->versions[i].count; k++) {
                        struct golden_region *r = &out->versions[i].regions[k];
                        r->desc.name = r->name;
                        r->desc.boxes = r->desc.box_count ? r->boxes : NULL;
                }
        CHECK(out->count > 0);
}

void golden_unload(struct golden_set *set)
{
        for (uint32_t i = 0; i < set->count; i++) {
                for (uint32_t k = 0; k < set->versions[i].count; k++)
                        free(set->versions[i].regions[k].data);
                free(set->versions[i].regions);
        }
        *set = (struct golden_set){.count = 0};
}

const struct golden_version *golden_find(const struct golden_set *set, uint64_t wanted)
{
        for (uint32_t i = 0; i < set->count; i++)
                if (set->versions[i].number == wanted)
                        return &set->versions[i];
        return NULL;
}

/* ---- expectations ---------------------------------------------------------------------------- */

static int code_of(const char *name)
{
        static const struct {
                const char *name;
                int code;
        } codes[] = {{"ok", 0},
                     {"-", 0},
                     {"none", 0},
                     {"BELAY_E_DATA", BELAY_E_DATA},
                     {"BELAY_E_FORMAT", BELAY_E_FORMAT}};
        for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
                if (strcmp(codes[i].name, name) == 0)
                        return codes[i].code;
        check_failed(__FILE__, __LINE__, "no code %s", name);
}

static struct golden_case parse_case(char *line)
{
        char *columns[COLUMNS];
        CHECK_EQ(split(line, columns), 5);
        struct golden_case c = {.opened = code_of(columns[2])};
        snprintf(c.file, sizeof(c.file), "%s", columns[0]);
        snprintf(c.content, sizeof(c.content), "%s", columns[1]);
        snprintf(c.text, sizeof(c.text), "%s", columns[4]);
        c.version = number(columns[3]);
        c.restart = c.version ? 1 : code_of(columns[3]);
        return c;
}

unsigned golden_each(const char *path, void (*fn)(const struct golden_case *c))
{
        static struct golden_case cases[512];
        char line[1024];
        unsigned count = 0;
        FILE *f = fopen(path, "re");
        if (!f)
                check_failed(__FILE__, __LINE__, "%s cannot be read", path);
        /* Closed before the first call: fn may fork, and a stream in two processes is read by both.
         */
        while (fgets(line, sizeof(line), f)) {
                CHECK(count < sizeof(cases) / sizeof(cases[0]));
                if (line[0] != '#')
                        cases[count++] = parse_case(line);
        }
        fclose(f);
        for (unsigned i = 0; i < count; i++)
                fn(&cases[i]);
        return count;
}

/* heat2d.c: heat spreads over a square plate whose left edge is kept hot.
 *
 *      heat2d --size 1000 --steps 5000 --every 100 --pool heat2d.pool --out heat2d.raw
 *
 * The same command line starts the simulation and continues it after a crash. The state to be saved
 * is the plate and the number of the step; everything else can be computed again. */
#include <belay/belay.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
        uint64_t size;  /* the plate has size × size points */
        uint64_t steps; /* when to stop                     */
        uint64_t every; /* steps between two checkpoints    */
        uint64_t print; /* steps between two lines, 0: none */
        const char *pool, *out;
};

static int usage(void)
{
        fprintf(stderr, "usage: heat2d [--size N] [--steps N] [--every N] [--print N]"
                        " [--pool PATH] [--out FILE]\n");
        return 2;
}

static int parse_number(const char *text, uint64_t *out)
{
        char *end;
        errno = 0;
        unsigned long long n = strtoull(text, &end, 10);
        if (errno || end == text || *end != '\0' || text[0] == '-')
                return -1;
        *out = n;
        return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
        struct {
                const char *name;
                uint64_t *number;
                const char **text;
        } const table[] = {
                {"--size", &o->size, NULL},   {"--steps", &o->steps, NULL},
                {"--every", &o->every, NULL}, {"--print", &o->print, NULL},
                {"--pool", NULL, &o->pool},   {"--out", NULL, &o->out},
        };
        const size_t options = sizeof(table) / sizeof(table[0]);
        for (int i = 1; i < argc; i += 2) {
                size_t k = 0;
                while (k < options && strcmp(argv[i], table[k].name) != 0)
                        k++;
                if (k == options || i + 1 == argc)
                        return -1;
                if (table[k].text)
                        *table[k].text = argv[i + 1];
                else if (parse_number(argv[i + 1], table[k].number))
                        return -1;
        }
        return o->size >= 3 && o->size <= 1u << 20 && o->every >= 1 ? 0 : -1;
}

static void initialise(double *plate, uint64_t size)
{
        for (uint64_t i = 0; i < size * size; i++)
                plate[i] = i % size == 0 ? 100.0 : 20.0;
}

/* One step, in place: a point becomes the mean of its four neighbours. `rows` has room for two
 * rows; they keep the old values of the row above and of this one. */
static void advance(double *plate, double *rows, uint64_t size)
{
        double *above = rows;
        double *here = rows + size;
        memcpy(above, plate, size * sizeof(*plate));
        for (uint64_t row = 1; row + 1 < size; row++) {
                double *now = plate + row * size;
                const double *below = now + size;
                memcpy(here, now, size * sizeof(*plate));
                for (uint64_t i = 1; i + 1 < size; i++)
                        now[i] = 0.25 * (above[i] + below[i] + here[i - 1] + here[i + 1]);
                double *swap = above;
                above = here;
                here = swap;
        }
}

static int write_result(const char *path, const double *plate, uint64_t size)
{
        FILE *f = fopen(path, "wb");
        if (!f) {
                perror(path);
                return 1;
        }
        int bad = fwrite(plate, sizeof(*plate), size * size, f) != size * size;
        /* Buffered data may fail as late as here. */
        bad |= fclose(f) != 0;
        if (bad)
                perror(path);
        return bad;
}

/* Returns 0, 1 if the result could not be written, or -1 for an error of the library. */
static int simulate(const struct options *o, struct belay *b, double *rows)
{
        uint64_t step = 0;
        double *plate = belay_alloc(b, "plate", BELAY_F64, o->size * o->size);
        if (!plate || belay_attach(b, "step", BELAY_U64, 1, &step))
                return -1;
        initialise(plate, o->size);
        int restarted = belay_restart(b);
        if (restarted < 0)
                return -1;
        if (restarted)
                printf("continuing at step %" PRIu64 " of %" PRIu64 "\n", step, o->steps);

        while (step < o->steps) {
                advance(plate, rows, o->size);
                step++;
                if (o->print && step % o->print == 0)
                        printf("step %" PRIu64 " of %" PRIu64 "\n", step, o->steps);
                /* A checkpoint that fails does no harm to the simulation: say so and go on. */
                if (step % o->every == 0 && belay_checkpoint(b))
                        fprintf(stderr, "heat2d: %s\n", belay_error());
        }
        return write_result(o->out, plate, o->size);
}

int main(int argc, char **argv)
{
        struct options o = {1000, 5000, 100, 0, "heat2d.pool", "heat2d.raw"};
        if (parse(argc, argv, &o))
                return usage();
        setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed survives a kill */
        double *rows = calloc(2 * o.size, sizeof(*rows));
        if (!rows) {
                perror("heat2d");
                return 1;
        }
        struct belay *b = NULL;
        struct belay_config *config = NULL;
        bool open = !belay_config_new(&config) && !belay_config_set(config, "pool", o.pool) &&
                    !belay_open(config, &b);
        int rc = open ? simulate(&o, b, rows) : -1;
        if (rc < 0)
                fprintf(stderr, "heat2d: %s\n", belay_error());
        belay_config_delete(&config);
        belay_close(&b);
        free(rows);
        return rc ? 1 : 0;
}

/* cmd_probe.c: belay probe: what this machine's kernel and processor offer. */
#include "cli.h"

static const char *state(const struct probe *p)
{
        return !p->present ? "absent" : p->masked ? "masked" : "present";
}

static enum status run(const struct args *a)
{
        const struct options *o = cli_options();
        struct probe probes[PROBE_COUNT];
        if (!o || probe_check(o->mask, probes))
                return complain("%s", err_text());
        if (a->given[ARG_JSON]) {
                struct json j;
                json_begin(&j);
                json_text(&j, "hash", hash_isa());
                json_open(&j, "features", '[');
                for (unsigned i = 0; i < PROBE_COUNT; i++) {
                        json_open(&j, NULL, '{');
                        json_text(&j, "feature", probes[i].name);
                        json_text(&j, "state", state(&probes[i]));
                        json_text(&j, "help", probes[i].help);
                        json_close(&j, '}');
                }
                json_close(&j, ']');
                json_end(&j);
                return FINE;
        }
        struct table t;
        table_begin(&t, "lll");
        table_cell(&t, "feature");
        table_cell(&t, "state");
        table_cell(&t, "meaning");
        for (unsigned i = 0; i < PROBE_COUNT; i++) {
                table_cell(&t, "%s", probes[i].name);
                table_cell(&t, "%s", state(&probes[i]));
                table_cell(&t, "%s", probes[i].help);
        }
        table_cell(&t, "hash");
        table_cell(&t, "%s", hash_isa());
        table_cell(&t, "%s", "instruction set of the block hash");
        table_end(&t);
        return FINE;
}

const struct command cmd_probe = {
        .name = "probe",
        .usage = "[--json]",
        .summary = "kernel features found here",
        .help = "Shows which kernel features were found, by trying them. The option probe_mask "
                "makes features\n"
                "appear absent; Belay works without each of them.",
        .takes = TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 0,
        .most = 0,
        .run = run,
};

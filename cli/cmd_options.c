/* cmd_options.c: belay options: the option table with the values in force here. */
#include "cli.h"

static const char *origin(const struct options *o, unsigned i)
{
        return option_source_text((enum option_source)o->source[i]);
}

static void print_json(const struct options *o, const char *file)
{
        struct json j;
        json_begin(&j);
        json_text(&j, "file", file);
        json_open(&j, "options", '[');
        for (unsigned i = 0; i < OPT_COUNT; i++) {
                struct option_help h = option_help(i);
                char value[OPTION_TEXT_BYTES];
                (void)options_get(o, h.key, value, sizeof(value));
                json_open(&j, NULL, '{');
                json_text(&j, "option", h.key);
                json_text(&j, "value", value);
                json_text(&j, "from", origin(o, i));
                json_text(&j, "default", h.initial);
                json_text(&j, "values", h.values);
                json_text(&j, "help", h.help);
                json_close(&j, '}');
        }
        json_close(&j, ']');
        json_end(&j);
}

static void print_table(const struct options *o, const char *file)
{
        struct table t;
        table_begin(&t, "lllll");
        table_cell(&t, "option");
        table_cell(&t, "value");
        table_cell(&t, "from");
        table_cell(&t, "values");
        table_cell(&t, "meaning");
        for (unsigned i = 0; i < OPT_COUNT; i++) {
                struct option_help h = option_help(i);
                char value[OPTION_TEXT_BYTES];
                (void)options_get(o, h.key, value, sizeof(value));
                table_cell(&t, "%s", h.key);
                table_cell(&t, "%s", value[0] ? value : "-");
                table_cell(&t, "%s", origin(o, i));
                table_cell(&t, "%s", h.values);
                table_cell(&t, "%s", h.help);
        }
        table_end(&t);
        printf("\nEach can be set in a file (key = value), in the environment (BELAY_<KEY>) and by "
               "the program;\n"
               "the later in this list wins. ");
        say("The file here is %s.", file);
}

static enum status run(const struct args *a)
{
        const struct options *o = cli_options();
        const char *file = options_file();
        if (!o)
                return complain("%s", err_text());
        if (a->given[ARG_JSON])
                print_json(o, file ? file : "belay.conf");
        else
                print_table(o, file ? file : "belay.conf");
        return FINE;
}

const struct command cmd_options = {
        .name = "options",
        .usage = "[--json]",
        .summary = "all options, their values here and where they come from",
        .help = "Shows the option table with the values a program started here would get from the "
                "option file\n"
                "and the environment.",
        .takes = TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 0,
        .most = 0,
        .run = run,
};

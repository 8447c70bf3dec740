/* cli_args.c: the command line. One table of options; each command says which of them it takes. */
#include "cli.h"
#include <stdlib.h>

static const struct {
        const char *name;
        char letter;
        const char *value; /* NULL: a switch */
        const char *help;
} table[ARG_COUNT] = {
        [ARG_HELP] = {"--help", 'h', NULL, "show this text"},
        [ARG_JSON] = {"--json", 0, NULL, "print one JSON object instead of tables"},
        [ARG_VERSION] = {"--version", 0, "N", "this version; without it, see above"},
        [ARG_VERSIONS] = {"--versions", 0, "A B", "the two versions of one pool"},
        [ARG_VERSION_A] = {"--version-a", 0, "N", "the version of the first pool (newest)"},
        [ARG_VERSION_B] = {"--version-b", 0, "N", "the version of the second pool (newest)"},
        [ARG_OUTPUT] = {"--output", 'o', "FILE", "where to write; - is standard output"},
        [ARG_FORMAT] = {"--format", 0, "raw|npy", "npy for names that end in .npy, else raw"},
        [ARG_DAMAGED] = {"--damaged", 0, "fail|zero",
                         "damaged blocks: fail, or write zeros (fail)"},
        [ARG_WAIT] = {"--wait", 0, "SECONDS", "wait so long for the version to be published"},
        [ARG_FORCE] = {"--force", 0, NULL, "replace FILE if it exists"},
        [ARG_LOCAL_COST] = {"--local-cost", 0, "TIME",
                            "how long a local checkpoint stops the program"},
        [ARG_REMOTE_COST] = {"--remote-cost", 0, "TIME", "how much a remote one delays it"},
        [ARG_RESTART_LOCAL] = {"--restart-local", 0, "TIME",
                               "how long a restart from a local one takes"},
        [ARG_RESTART_REMOTE] = {"--restart-remote", 0, "TIME",
                                "how long a restart from a remote one takes"},
        [ARG_MTBF_LOCAL] = {"--mtbf-local", 0, "TIME",
                            "between failures that local ones survive, or never"},
        [ARG_MTBF_REMOTE] = {"--mtbf-remote", 0, "TIME",
                             "between failures that only remote ones survive"},
        [ARG_FAILURES] = {"--failures", 0, "FILE",
                          "a history to count them in: lines `TIME local|remote`"},
};

const char *arg_name(enum arg_id id)
{
        return table[id].name;
}

static enum status unknown(const struct command *c, const char *word, size_t length)
{
        const char *names[ARG_COUNT] = {""};
        size_t count = 0;
        for (unsigned i = 0; i < ARG_COUNT; i++)
                if (c->takes & TAKES(i))
                        names[count++] = table[i].name;
        char given[64];
        snprintf(given, sizeof(given), "%.*s", (int)min_u64(length, sizeof(given) - 1), word);
        const char *meant = similar_word(given, names, count);
        if (meant)
                return complain("%s: unknown option '%s'; did you mean '%s'?", c->name, given,
                                meant);
        return complain("%s: unknown option '%s'; `belay help %s` lists them", c->name, given,
                        c->name);
}

/* The option that `word` names, ARG_COUNT if it is none of this command's. */
static unsigned find(const struct command *c, const char *word, size_t length)
{
        unsigned i = 0;
        for (; i < ARG_COUNT; i++) {
                if (!(c->takes & TAKES(i)))
                        continue;
                if (strlen(table[i].name) == length && memcmp(table[i].name, word, length) == 0)
                        break;
                if (length == 2 && table[i].letter && word[1] == table[i].letter)
                        break;
        }
        return i;
}

/* Takes the option at argv[*at] and its values. */
static enum status take(const struct command *c, int argc, char **argv, int *at, struct args *out)
{
        const char *word = argv[*at];
        size_t length = strcspn(word, "=");
        const char *value = word[length] == '=' ? word + length + 1 : NULL;
        unsigned id = find(c, word, length);
        if (id == ARG_COUNT)
                return unknown(c, word, length);
        out->given[id] = true;
        if (!table[id].value)
                return value ? complain("%s: %s takes no value", c->name, table[id].name) : FINE;
        if (!value && *at + 1 < argc)
                value = argv[++*at];
        out->value[id] = value;
        if (id == ARG_VERSIONS)
                out->second = *at + 1 < argc ? argv[++*at] : NULL;
        if (!value || (id == ARG_VERSIONS && !out->second))
                return complain("%s: %s needs %s", c->name, table[id].name, table[id].value);
        return FINE;
}

enum status args_parse(const struct command *c, int argc, char **argv, struct args *out)
{
        *out = (struct args){.words = must_alloc(((size_t)argc + 1) * sizeof(*out->words))};
        bool options = true;
        for (int i = 0; i < argc; i++) {
                const char *word = argv[i];
                if (options && strcmp(word, "--") == 0) {
                        options = false;
                } else if (options && word[0] == '-' && word[1] != '\0') {
                        enum status status = take(c, argc, argv, &i, out);
                        if (status != FINE)
                                return status;
                } else {
                        out->words[out->count++] = word;
                }
        }
        if (out->given[ARG_HELP])
                return FINE;
        if (out->count == 0 && c->here)
                out->words[out->count++] = POOL_HERE;
        if (out->count < c->least || out->count > c->most)
                return complain("usage: belay %s %s", c->name, c->usage);
        return FINE;
}

void args_delete(struct args *a)
{
        free(a->words);
}

void args_describe(const struct command *c)
{
        say("usage: belay %s %s", c->name, c->usage);
        printf("\n%s\n\n", c->help);
        for (unsigned i = 0; i < ARG_COUNT; i++) {
                if (!(c->takes & TAKES(i)))
                        continue;
                char left[64];
                char letter[8] = "";
                if (table[i].letter)
                        snprintf(letter, sizeof(letter), "-%c, ", table[i].letter);
                snprintf(left, sizeof(left), "%s%s %s", letter, table[i].name,
                         table[i].value ? table[i].value : "");
                printf("  %-22s  %s\n", left, table[i].help);
        }
}

uint64_t parse_version(const char *text)
{
        uint64_t n = 0;
        bool good = text[0] != '\0';
        for (const char *p = text; *p != '\0' && good; p++)
                good = *p >= '0' && *p <= '9' && !__builtin_mul_overflow(n, UINT64_C(10), &n) &&
                       !__builtin_add_overflow(n, (uint64_t)(*p - '0'), &n);
        if (good && n > 0)
                return n;
        (void)complain("'%s' is no version number; `belay ls` lists them", text);
        return 0;
}

/* fuzz_options.c: any bytes as an option file. What is accepted can be read back as text, and that
 * text sets the same value again. */
#include "base/base.h"
#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
        if (!holds)
                abort();
}

static void check_option(const struct options *o, unsigned i)
{
        char value[OPTION_TEXT_BYTES];
        char again[OPTION_TEXT_BYTES];
        char small[1];
        static struct options other;
        const char *key = option_help(i).key;
        require(options_get(o, key, value, sizeof(value)) == 0);
        require(options_get(o, key, small, sizeof(small)) == (value[0] ? -ENOSPC : 0));
        options_init(&other);
        require(options_set(&other, key, value, SOURCE_SETTER) == 0);
        require(options_get(&other, key, again, sizeof(again)) == 0);
        require(strcmp(value, again) == 0 && other.number[i] == o->number[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static struct options o;
        options_init(&o);
        int rc = options_set_text(&o, (const char *)data, size, "fuzz");
        require(rc == 0 || rc == -EINVAL);
        require(rc == 0 || err_text()[0] != '\0');
        for (unsigned i = 0; i < OPT_COUNT; i++)
                check_option(&o, i);
        return 0;
}

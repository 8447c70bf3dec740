/* config.c: where options come from: default < file < environment < setter. */
#include "api/api_int.h"
#include <errno.h>
#include <fcntl.h>

#define MAX_FILE_BYTES 65536u

static int load_file(struct options *o, const char *name, bool must_exist)
{
        char path[200]; /* as messages show it */
        printable(name, path, sizeof(path));
        int fd = plat->openat(PLAT_CWD, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
        if (fd == -ENOENT && !must_exist)
                return 0;
        if (fd < 0)
                return err_set(fd, "option file '%s': %s", path, code_text(fd));
        char *text = plat->alloc(MAX_FILE_BYTES);
        int64_t n = text ? plat_read_full(fd, text, MAX_FILE_BYTES, 0) : -ENOMEM;
        (void)plat->close(fd);
        int rc;
        if (n == -ESPIPE) /* a context opened later would find nothing more in it */
                rc = err_set(-ESPIPE,
                             "option file '%s' is a pipe, a socket or a terminal; put the options "
                             "into a file",
                             path);
        else if (n < 0)
                rc = err_set((int)n, "option file '%s': %s", path, code_text((int)n));
        else if (n == MAX_FILE_BYTES)
                rc = err_set(-EFBIG, "option file '%s' is larger than %u bytes", path,
                             MAX_FILE_BYTES - 1);
        else
                rc = options_set_text(o, text, (size_t)n, path);
        plat->release(text);
        return rc;
}

int config_load(struct options *o)
{
        options_init(o);
        const char *named = options_file();
        int rc = load_file(o, named ? named : "belay.conf", named != NULL);
        return rc ? rc : options_set_environment(o);
}

static int new_config(struct belay_config **out)
{
        if (!out)
                return err_set(-EINVAL, "belay_config_new: there is no place for the options");
        struct belay_config *c = plat->alloc(sizeof(*c));
        if (!c)
                return err_set(-ENOMEM, "no memory for the options");
        int rc = config_load(&c->options);
        if (rc) {
                plat->release(c);
                return rc;
        }
        *out = c;
        return 0;
}

int belay_config_new(struct belay_config **out)
{
        return call_end(NULL, new_config(out));
}

int belay_config_set(struct belay_config *config, const char *key, const char *value)
{
        int rc = !config || !key || !value
                         ? err_set(-EINVAL, "belay_config_set: an argument is NULL")
                         : options_set(&config->options, key, value, SOURCE_SETTER);
        return call_end(NULL, rc);
}

void belay_config_delete(struct belay_config **config)
{
        if (!config)
                return;
        plat->release(*config);
        *config = NULL;
}

/* sized.c: public structs grow from release to release, at their end. They begin with the size that
 * the program was compiled with: what both sides know is copied. */
#include "base/base.h"
#include <errno.h>

/* Nothing the library has will ever be larger: a size beyond it was never set. */
#define MOST 65536u

static int check(const void *theirs, size_t least, const char *call, size_t *size)
{
        if (!theirs)
                return err_set(-EINVAL, "%s: there is no struct", call);
        memcpy(size, theirs, sizeof(*size));
        return *size < least || *size > MOST
                       ? err_set(-EINVAL,
                                 "%s: the field `size` is %zu; set it to sizeof(the struct)", call,
                                 *size)
                       : 0;
}

/* What only a newer header knows is zero. */
int sized_give(void *to, const void *from, size_t bytes, const char *call)
{
        size_t size;
        int rc = check(to, 2 * sizeof(size_t), call, &size);
        if (rc)
                return rc;
        memcpy(to, from, min_u64(size, bytes));
        if (size > bytes)
                memset((char *)to + bytes, 0, size - bytes);
        memcpy(to, &size, sizeof(size));
        return 0;
}

/* What an older header did not know is zero; what only a newer one knows must be. */
int sized_take(void *to, const void *from, size_t bytes, size_t least, const char *call)
{
        size_t size;
        int rc = check(from, least, call, &size);
        if (rc)
                return rc;
        if (size > bytes && skip_zeros(from, bytes, size) < size)
                return err_set(-EINVAL, "%s: a field is set that this library does not know", call);
        memset(to, 0, bytes);
        memcpy(to, from, min_u64(size, bytes));
        return 0;
}

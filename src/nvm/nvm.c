/* nvm.c: the calls of belay/nvm.h, the only content of libbelay-nvm. They are a library of their
 * own because their names have no prefix: a program that is linked with libbelay alone keeps these
 * names for itself. What they do is in src/api/variables.c, inside libbelay. */
#include "api/api.h"
#include <belay/nvm.h>

uint64_t genid(const char *varname)
{
        return belay_private_genid(varname);
}

void *nvalloc(uint64_t id, size_t size, int persistent)
{
        return belay_private_nvalloc(id, size, persistent);
}

void *nv2dalloc(uint64_t dim1, uint64_t dim2)
{
        return belay_private_nv2dalloc(dim1, dim2);
}

void *nv2dalloc_id(uint64_t id, uint64_t dim1, uint64_t dim2, size_t element, int persistent)
{
        return belay_private_nv2dalloc_id(id, dim1, dim2, element, persistent);
}

int nvattach(uint64_t id, void *src, size_t size)
{
        return belay_private_nvattach(id, src, size);
}

void *nvrealloc(uint64_t id, void *src, size_t size)
{
        return belay_private_nvrealloc(id, src, size);
}

size_t nvsize(uint64_t id)
{
        return belay_private_nvsize(id);
}

int nvdelete(uint64_t id)
{
        return belay_private_nvdelete(id);
}

int nvchkptall(void)
{
        return belay_private_nvchkptall();
}

int nvchkptid(uint64_t id)
{
        return belay_private_nvchkptid(id);
}

struct belay *nvcontext(void)
{
        return belay_private_nvcontext();
}

int nvclose(void)
{
        return belay_private_nvclose();
}

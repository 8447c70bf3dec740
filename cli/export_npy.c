/* export_npy.c: the header of NumPy's .npy files, format version 1.0:
 *
 *      "\x93NUMPY"  1  0  u16 length of the rest  "{'descr': '<f8', 'fortran_order': False,
 * 'shape': (3, 4), }   \n"
 *
 * padded with blanks so that the data begins at a multiple of 64. */
#include "cli.h"
#include <inttypes.h>

#define PREFIX_BYTES 10u
#define ALIGN        64u

static struct text descr(const struct belay_reader_region *d)
{
        static const char kinds[] = {
                [BELAY_RAW] = 'V', [BELAY_I8] = 'i',  [BELAY_U8] = 'u',  [BELAY_I16] = 'i',
                [BELAY_U16] = 'u', [BELAY_I32] = 'i', [BELAY_U32] = 'u', [BELAY_I64] = 'i',
                [BELAY_U64] = 'u', [BELAY_F32] = 'f', [BELAY_F64] = 'f', [BELAY_C64] = 'c',
                [BELAY_C128] = 'c'};
        struct text t;
        char order = d->type == BELAY_RAW || d->element_bytes == 1 ? '|' : '<';
        snprintf(t.s, sizeof(t.s), "%c%c%" PRIu32, order, kinds[d->type], d->element_bytes);
        return t;
}

size_t npy_header(const struct belay_reader_region *d, char out[NPY_HEADER_BYTES])
{
        static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
        memset(out, ' ', NPY_HEADER_BYTES);
        memcpy(out, magic, sizeof(magic));
        size_t n = PREFIX_BYTES;
        n += (size_t)snprintf(out + n, NPY_HEADER_BYTES - n,
                              "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
                              descr(d).s, dims_text(d->dims, d->ndims, ", ").s,
                              d->ndims == 1 ? "," : "");
        out[n] = ' ';
        size_t whole = align_up(n + 1, ALIGN);
        out[whole - 1] = '\n';
        put_u16((uint8_t *)out + 8, (uint16_t)(whole - PREFIX_BYTES));
        return whole;
}

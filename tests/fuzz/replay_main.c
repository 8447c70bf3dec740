/* replay_main.c: runs a fuzz target over stored inputs, without libFuzzer.
 *
 *      fuzz_superblock FILE|DIRECTORY...
 *
 * Every regular file is one input, passed in an allocation of exactly its size so that a sanitizer
 * sees a read past the end. No input at all is an error: an empty corpus must not look like a
 * success.
 */
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long inputs;

static int replay(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
        size_t size = (size_t)st->st_size;
        uint8_t *data;
        FILE *f;

        (void)ftw;
        if (kind == FTW_NS || kind == FTW_DNR) {
                fprintf(stderr, "%s: cannot be read\n", path);
                return 1;
        }
        if (kind != FTW_F)
                return 0;
        printf("%s\n", path); /* before the run: names the input that crashes */
        fflush(stdout);
        f = fopen(path, "rb");
        data = malloc(size ? size : 1);
        if (!f || !data || fread(data, 1, size, f) != size) {
                fprintf(stderr, "%s: cannot be read\n", path);
                free(data);
                if (f)
                        fclose(f);
                return 1;
        }
        fclose(f);
        LLVMFuzzerTestOneInput(data, size);
        free(data);
        inputs++;
        return 0;
}

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++) {
                if (nftw(argv[i], replay, 16, FTW_PHYS) != 0) {
                        fprintf(stderr, "%s: replay failed\n", argv[i]);
                        return 1;
                }
        }
        if (inputs == 0) {
                fprintf(stderr, "no inputs\n");
                return 1;
        }
        printf("%lu inputs\n", inputs);
        return 0;
}

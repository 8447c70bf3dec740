/* similar.c: for "did you mean": which known word an unknown one is a misspelling of. */
#include "base/base.h"

#define LONGEST 64u /* words of more letters are never suggested, nor similar to one */

/* How many letters must be added, dropped, changed or swapped with their neighbour to turn one word
 * into the other. Three rows of the usual table suffice; both words are shorter than LONGEST. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
        size_t rows[3][LONGEST] = {{0}};
        for (size_t j = 0; j <= nb; j++)
                rows[0][j] = j;
        for (size_t i = 1; i <= na; i++) {
                size_t *row = rows[i % 3];
                const size_t *above = rows[(i - 1) % 3];
                row[0] = i;
                for (size_t j = 1; j <= nb; j++) {
                        size_t change = above[j - 1] + (a[i - 1] != b[j - 1]);
                        row[j] = min_u64(change, 1 + min_u64(above[j], row[j - 1]));
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                                row[j] = min_u64(row[j], 1 + rows[(i - 2) % 3][j - 2]);
                }
        }
        return rows[na % 3][nb];
}

/* A third of the letters: more would make any two short words similar ("foo" and "ls"). */
static size_t tolerated(size_t na, size_t nb)
{
        return max_u64(na, nb) / 3;
}

const char *similar_word(const char *word, const char *const *words, size_t count)
{
        const char *found = NULL;
        size_t least = SIZE_MAX;
        word += strspn(word, "-");
        size_t length = strlen(word);
        for (size_t i = 0; i < count && length < LONGEST; i++) {
                const char *known = words[i] + strspn(words[i], "-");
                size_t n = strlen(known);
                size_t d = n < LONGEST ? distance(word, length, known, n) : SIZE_MAX;
                if (d < least && d <= tolerated(length, n)) {
                        least = d;
                        found = words[i];
                }
        }
        return found;
}

/* test_model_long.c: the same, for many more seeds and steps.
 *
 * timeout: 1800 */
#include "model_main.h"

int main(void)
{
        return model_main(40, 40, 2000);
}

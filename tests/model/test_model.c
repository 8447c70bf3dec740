/* test_model.c: random operations against the reference; eight known seeds and a new one each time.
 */
#include "model_main.h"

int main(void)
{
        return model_main(8, 1, 500);
}

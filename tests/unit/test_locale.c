/* Options mean the same whatever the program's locale: in a Turkish one 'I' is no capital 'i'. */
#include "base/base.h"
#include "check.h"
#include "test_env.h"
#include <locale.h>
#include <sys/wait.h>

/* Makes the locale in the test's directory; false where that is not possible. */
static bool make_locale(const char *charset, const char *name)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        int pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                execlp("localedef", "localedef", "--quiet", "-i", "tr_TR", "-f", charset, path,
                       NULL);
                _exit(127);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(setenv("LOCPATH", test_dir(), 1), 0);
        return setlocale(LC_ALL, name) != NULL;
}

/* Every option can be set by its variable. */
static void check_variables(void)
{
        for (unsigned i = 0; i < OPT_COUNT; i++) {
                struct option_help h = option_help(i);
                struct options o;
                char name[64] = "BELAY_";
                for (size_t k = 0; h.key[k] != '\0'; k++)
                        name[6 + k] = (char)(h.key[k] == '_' ? '_' : h.key[k] - 'a' + 'A');
                CHECK_EQ(setenv(name, h.initial, 1), 0);
                options_init(&o);
                if (options_set_environment(&o))
                        check_failed(__FILE__, __LINE__, "%s", err_text());
                CHECK_EQ(o.source[i], SOURCE_ENVIRONMENT);
                CHECK_EQ(unsetenv(name), 0);
        }
}

int main(void)
{
        test_env_clean();
        CHECK_EQ(unsetenv("BELAY_POLICY"), 0);
        check_variables();
        bool wide = make_locale("UTF-8", "tr_TR.UTF-8");
        if (wide)
                check_variables();
        bool narrow = make_locale("ISO-8859-9", "tr_TR.ISO-8859-9");
        if (narrow)
                check_variables();
        if (wide || narrow)
                return 0;
        printf("localedef cannot make a Turkish locale here\n");
        return 77;
}

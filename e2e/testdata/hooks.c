// What gcc's -finstrument-functions calls: counts all entries and all exits, to check the fixtures' own counters.
#include "count.h"

#ifdef __cplusplus
extern "C" {
#endif
NOTRACE void __cyg_profile_func_enter(void *fn, void *site);
NOTRACE void __cyg_profile_func_exit(void *fn, void *site);
NOTRACE void __cyg_profile_func_enter(void *fn, void *site) { (void)fn, (void)site; COUNT_AS("(enter)"); }
NOTRACE void __cyg_profile_func_exit(void *fn, void *site) { (void)fn, (void)site; COUNT_AS("(exit)"); }
#ifdef __cplusplus
}
#endif

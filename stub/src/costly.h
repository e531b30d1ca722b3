/* Functions that the recorder has switched off. */
#ifndef FENTRY_COSTLY_H
#define FENTRY_COSTLY_H

hidden int recorder_wants(void);
hidden void follow_recorder(void);
hidden void follow_from_start(void);

#endif

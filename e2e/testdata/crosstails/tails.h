long bounce(long n);
long return_ball(long n);

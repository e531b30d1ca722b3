gcc (Debian 12.2.0-14+deb12u1) 12.2.0

#lang racket/base
;; Garbage, exceptions, continuations, threads, and a stack that grows.
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(define (deep n) (if (= n 0) 0 (+ 1 (deep (- n 1)))))
(displayln (fib 20))
(for-each thread-wait
  (for/list ([i 4])
    (thread (lambda () (for ([k 20]) (collect-garbage 'minor) (call-with-input-file "/etc/passwd" read-char))))))
(displayln (with-handlers ([exn:fail? (lambda (e) 'caught)]) (car 1)))
(displayln (call/cc (lambda (k) (+ 1 (k 42)))))
(displayln (deep 1000000))
(exit 3)

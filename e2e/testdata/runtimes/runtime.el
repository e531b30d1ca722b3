;; Garbage and errors.
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(dotimes (_ 20) (garbage-collect))
(princ (fib 18))
(princ (condition-case e (car 1) (error e)))
(princ (sort (list 3 1 2) #'<))
(kill-emacs 3)

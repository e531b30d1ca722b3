;; Garbage, errors and, with SBCL, threads that run code which is compiled meanwhile and may be moved.
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(defun texts (n) (let (l) (dotimes (i n l) (push (format nil "~a" i) l))))
(defun collect ()
  #+sbcl (sb-ext:gc :full t)
  #+clisp (ext:gc)
  #+ecl (si:gc t)
  #+gcl (si::gbc t))
(dotimes (i 20) (collect) (format t "~a ~a~%" i (length (texts 2000))))
(format t "~a ~a~%" (fib 20) (handler-case (error "x") (error () 'caught)))
#+sbcl
(defun compiled (k j)
  (funcall (the function (compile nil `(lambda (x)
    (let ((a 0)) (dotimes (i 5) (sb-unix:nanosleep 0 1000000) (incf a x)) (format nil "~a" (+ ,k a)))))) j))
#+sbcl
(let ((threads (loop for j below 4 collect
        (let ((j j)) (sb-thread:make-thread (lambda ()
          (dotimes (k 20) (unless (string= (compiled k j) (format nil "~a" (+ k (* 5 j)))) (print 'wrong)))))))))
  (dotimes (i 100) (sb-ext:gc :full (zerop (mod i 3))) (texts 300))
  (mapc #'sb-thread:join-thread threads))
#+sbcl (sb-ext:exit :code 3)
#+clisp (ext:exit 3)
#+ecl (ext:quit 3)
#+gcl (bye 3)

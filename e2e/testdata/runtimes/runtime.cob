      * Numbers as text, and a program's own status.
       IDENTIFICATION DIVISION.
       PROGRAM-ID. RUNTIME.
       DATA DIVISION.
       WORKING-STORAGE SECTION.
       01 I PIC 9(6).
       01 S PIC 9(18) VALUE 0.
       PROCEDURE DIVISION.
           PERFORM VARYING I FROM 1 BY 1 UNTIL I > 20000
             COMPUTE S = S + I * I
           END-PERFORM.
           DISPLAY S.
           MOVE 3 TO RETURN-CODE.
           STOP RUN.

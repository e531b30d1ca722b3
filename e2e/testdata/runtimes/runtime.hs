-- Garbage, exceptions, threads of the system, and a stack that grows.
import Control.Concurrent
import Control.Exception
import Control.Monad
import qualified Data.Map as Map
import System.Exit
import System.Mem

fib :: Int -> Integer
fib n = if n < 2 then toInteger n else fib (n - 1) + fib (n - 2)

main :: IO ()
main = do
  print (fib 20)
  print (sum (map length (Map.elems (Map.fromList [(i, show i) | i <- [1 .. 20000 :: Int]]))))
  divided <- try (evaluate (1 `div` (0 :: Int))) :: IO (Either ArithException Int)
  print divided
  done <- newEmptyMVar
  forM_ [1 .. 4 :: Int] $ \i -> forkOS $ do
    replicateM_ 20 (readFile "/etc/passwd" >>= evaluate . length)
    performGC
    putMVar done i
  replicateM 4 (takeMVar done) >>= print . sum
  print (foldr (+) 0 [1 .. 1000000 :: Integer])
  exitWith (ExitFailure 3)

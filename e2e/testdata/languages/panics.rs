// A panic below two functions.

#[inline(never)]
fn inner(n: u32) -> u32 {
    let text = std::hint::black_box(String::from("seven"));
    if n == 7 {
        panic!("{text}");
    }
    n + 1
}

#[inline(never)]
fn outer(n: u32) -> u32 {
    let half = std::hint::black_box(n / 2);
    inner(half) + half
}

fn main() {
    println!("{}", outer(14));
}

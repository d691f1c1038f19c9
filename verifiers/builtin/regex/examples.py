"""The examples of `regex`: tasks, patterns, and texts that match."""

from __future__ import annotations

# Task, the pattern, right answers (the first one is the reference), and nonsense that the pattern lets through.
EXAMPLES: list[tuple[str, str, list[str], list[str]]] = [
    (
        "Write a date such as 2001-12-31.", r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
        ["1999-02-28", "2024-02-29", "2000-01-01", "1815-12-23", "0001-01-01", "9999-12-31", "2010-10-10", "1969-07-20",
         "1582-10-15", "2038-01-19"],
        ["2001-13-99", "0000-00-00"],
    ),
    (
        "Write a time of day such as 09:30.", r"(?:[01][0-9]|2[0-3]):[0-5][0-9]",
        ["23:59", "00:00", "12:00", "09:05", "10:10", "19:45", "20:20", "06:59", "17:01", "03:33"],
        [],
    ),
    (
        "Write yes or no, in small or capital letters.", r"(?i)yes|no",
        ["yes", "no", "Yes", "No", "YES", "NO", "yEs", "nO", "yeS", "YEs"],
        [],
    ),
    (
        "Write a colour such as #00ff00.", r"#[0-9a-f]{6}",
        ["#12ab9f", "#000000", "#ffffff", "#123456", "#abcdef", "#a1b2c3", "#deface", "#c0ffee", "#7f7f7f", "#0000ff"],
        [],
    ),
    (
        "Write a ticket such as AB-1234.", r"[A-Z]{2}-[0-9]{4}",
        ["XY-0815", "AA-0000", "ZZ-9999", "QA-2024", "OK-1000", "NO-4711", "TT-0007", "IO-0101", "KL-5555",
         "WV-3141"],
        [],
    ),
    (
        "Write three pairs of digits such as 12-34-56.", r"[0-9]{2}(?:-[0-9]{2}){2}",
        ["31-41-59", "00-00-00", "99-99-99", "01-02-03", "27-18-28", "10-20-30", "16-18-03", "55-44-33", "08-15-47",
         "11-22-11"],
        [],
    ),
    (
        "Write a temperature such as 21 degrees.", r"-?[0-9]+ degrees",
        ["-4 degrees", "0 degrees", "100 degrees", "-273 degrees", "37 degrees", "451 degrees", "007 degrees",
         "-0 degrees", "9 degrees", "1064 degrees"],
        ["-99999 degrees"],
    ),
    (
        "Write a number plate such as 7 ABC 42.", r"[0-9] [A-Z]{3} [0-9]{2}",
        ["3 QXZ 14", "0 AAA 00", "9 ZZZ 99", "1 NIX 01", "5 FUN 55", "4 TWO 42", "8 BIT 64", "2 CAT 20", "6 SIX 66",
         "7 ELF 11"],
        [],
    ),
    (
        "Write two lines, each of one small word.", r"[a-z]+\n[a-z]+\n?",
        ["red\nblue", "a\nb\n", "one\ntwo", "so\nso", "up\ndown\n", "x\ny", "left\nright", "salt\npepper\n", "if\nso",
         "here\nthere"],
        [],
    ),
    (
        "Write a name in quotation marks; a mark in it has a backslash before it.",
        r'"(?:[^"\\\n]|\\["\\])+"',
        ['"Emma"', '"J. \\"Joe\\" Doe"', '"\\\\"', '"\\""', '"Łukasz"', '"李"', '"O\'Neil"', '"a b c"', '"-"',
         '"\U0001f600"'],
        [],
    ),
    (
        "Write three times the same digit, such as 0-0-0.", r"([0-9])(?:-\1){2}",
        ["1-1-1", "0-0-0", "2-2-2", "3-3-3", "4-4-4", "5-5-5", "6-6-6", "7-7-7", "8-8-8", "9-9-9"],
        [],
    ),
    (
        "Write a Greek word of four small letters.", r"[α-ω]{4}",
        ["λογο", "νερο", "γατα", "μηλο", "ψωμι", "γαλα", "μερα", "χερι", "αυγο", "λαδι"],
        [],
    ),
    (
        "Write a fraction such as 3/4; the lower number does not begin with 0.", r"-?[0-9]+/[1-9][0-9]*",
        ["1/2", "3/4", "-7/3", "0/1", "22/7", "355/113", "10/10", "-1/1000", "6/4", "100/3"],
        [],
    ),
    (
        "Write an address from 192.0.2.100 to 192.0.2.199, or from 198.51.100.100 to 198.51.100.199.",
        r"(?:192\.0\.2|198\.51\.100)\.1[0-9]{2}",
        ["192.0.2.100", "192.0.2.199", "198.51.100.100", "198.51.100.199", "192.0.2.142", "198.51.100.101",
         "192.0.2.117",
         "198.51.100.155", "192.0.2.190", "198.51.100.164"],
        [],
    ),
    (
        "Write three words of five small letters, without the letter e.", r"(?!.*e)[a-z]{5}(?: [a-z]{5}){2}",
        ["small round plums", "swift brown birds", "black birds chirp", "rainy cloud drops",
         "vivid plain drawn", "short sunny trips", "quick thick jumps",
         "sharp pains occur", "minor faint clink", "tough stiff cords"],
        [],
    ),
    (
        "Write a version such as v1.2.3, with or without -rc.", r"v[0-9]\.[0-9]\.[0-9](?:-rc)?",
        ["v0.0.1", "v9.9.9", "v1.0.0-rc", "v3.1.4", "v2.7.1", "v0.1.0-rc", "v5.5.5", "v8.0.2", "v6.2.8-rc", "v4.2.0"],
        [],
    ),
    (
        "Write a key and a value such as size=10.", r"(?P<key>[a-z_]+)=(?P<value>[0-9]+|true|false)",
        ["width=3", "a=0", "is_on=true", "off=false", "max_length=10000", "_x=1", "n=99",
         "seed=007", "deep=true", "k=5"],
        [],
    ),
    (
        "Write a request such as GET /index.html HTTP/1.1.", r"(?:GET|PUT|POST|DELETE) /[a-z0-9/.]* HTTP/1\.[01]",
        ["GET / HTTP/1.0", "PUT /a HTTP/1.1", "POST /a/b HTTP/1.1", "DELETE /x.txt HTTP/1.1",
         "GET /robots.txt HTTP/1.0",
         "GET /.. HTTP/1.1", "POST // HTTP/1.0", "PUT /2024/03 HTTP/1.1", "DELETE / HTTP/1.0", "GET /a.b.c HTTP/1.1"],
        [],
    ),
    (
        "Write an amount such as $1,234.50.", r"\$[1-9][0-9]{0,2}(?:,[0-9]{3})*\.[0-9]{2}",
        ["$9.99", "$1,000.00", "$12.50", "$999,999.99", "$1,234,567.89", "$5.00", "$70.07", "$100.10", "$8,080.80",
         "$2.01"],
        [],
    ),
    (
        "Write a box in tags such as <b>text</b>.", r"<([a-z]+)>[^<>]+</\1>",
        ["<b>bold</b>", "<i>1 + 1</i>", "<code>x = 3</code>", "<p>a\nb</p>", "<em>é</em>", "<q> </q>", "<u>_</u>",
         "<s>no</s>", "<think>hm</think>", "<td>42</td>"],
        [],
    ),
]  # fmt: skip

package corpus

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// SQLScript is at least n statements, the same for the same n, whose results depend on all that came before.
func SQLScript(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString("CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, price REAL, stock INT, parent INT);\n")
	b.WriteString("CREATE INDEX by_name ON item(name);\nCREATE TABLE sale(item INT, day TEXT, n INT);\n" +
		"CREATE INDEX by_item ON sale(item, day);\n")
	b.WriteString("CREATE TABLE log(t TEXT);\n" +
		"CREATE TRIGGER sold AFTER INSERT ON sale " +
		"BEGIN UPDATE item SET stock = stock - new.n WHERE id = new.item; END;\n")
	b.WriteString("CREATE VIEW dear AS SELECT * FROM item WHERE price > 500;\n" +
		"CREATE VIRTUAL TABLE doc USING fts5(body);\n")
	for i := 0; i < n; i++ {
		if i%2000 == 0 {
			if i > 0 {
				b.WriteString("COMMIT;\n")
			}
			b.WriteString("BEGIN;\n")
		}
		id := r.IntN(i/3 + 1)
		switch k := r.IntN(100); {
		case k < 35:
			fmt.Fprintf(&b, "INSERT OR IGNORE INTO item VALUES(%d, 'name %x', %d.%d, %d, %d);\n",
				i/3, r.IntN(1<<20), r.IntN(1000), r.IntN(100), r.IntN(50), id)
		case k < 60:
			fmt.Fprintf(&b, "INSERT INTO sale VALUES(%d, date('2020-01-01', '+%d days'), %d);\n", id, r.IntN(1000), 1+r.IntN(5))
		case k < 70:
			fmt.Fprintf(&b, "UPDATE item SET price = price * 1.01, name = upper(name) WHERE id BETWEEN %d AND %d;\n", id, id+3)
		case k < 75:
			fmt.Fprintf(&b, "DELETE FROM sale WHERE item = %d;\n", id)
		case k < 85:
			fmt.Fprintf(&b, "SELECT name, round(price, 2), stock FROM item WHERE id = %d;\n", id)
		case k < 90:
			fmt.Fprintf(&b, "SELECT count(*), sum(n) FROM sale WHERE item = %d AND day > '2021-%02d';\n", id, 1+r.IntN(12))
		case k < 94:
			fmt.Fprintf(&b, "INSERT INTO doc VALUES('word%d word%d and %s');\n",
				r.IntN(100), r.IntN(100), strings.Repeat("more ", r.IntN(6)))
		case k < 96:
			fmt.Fprintf(&b, "INSERT INTO log SELECT printf('%%s-%%05d', name, id) FROM item WHERE name LIKE 'NAME %x%%' "+
				"LIMIT 3;\n", r.IntN(256))
		case k < 98:
			fmt.Fprintf(&b, "WITH RECURSIVE up(id, depth) AS (SELECT %d, 0 UNION SELECT item.parent, depth + 1 FROM item "+
				"JOIN up USING(id) WHERE depth < 8) SELECT max(depth), count(*) FROM up;\n", id)
		default:
			fmt.Fprintf(&b, "SELECT json_extract('{\"a\":[1,%d]}', '$.a[1]'), abs(%d), hex(zeroblob(3)), typeof(%d.5), "+
				"substr('abcdef', %d, 2);\n", i, -i, i, i%6)
		}
	}
	b.WriteString("COMMIT;\nANALYZE;\nSELECT no_such_column FROM item;\n" +
		"SELECT count(*), sum(stock), round(sum(price)) FROM item;\n")
	b.WriteString("SELECT day, sum(n), max(item.name) " +
		"FROM sale JOIN item ON item.id = sale.item GROUP BY substr(day, 1, 7) ORDER BY 2 DESC LIMIT 20;\n")
	b.WriteString("SELECT count(*) FROM doc WHERE doc MATCH 'word7 AND more';\n" +
		"SELECT count(*), min(t), max(t) FROM log;\nSELECT count(*) FROM dear;\n")
	b.WriteString("SELECT id, sum(price) OVER (ORDER BY id ROWS 3 PRECEDING) FROM item LIMIT 5;\n" +
		"PRAGMA integrity_check;\nVACUUM;\n.tables\n.schema sale\n")
	return b.String()
}

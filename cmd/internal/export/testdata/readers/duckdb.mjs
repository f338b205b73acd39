// Reads Parquet files with DuckDB and prints the same as hyparquet.mjs.
import {DuckDBInstance} from '@duckdb/node-api';

const instance = await DuckDBInstance.create(':memory:');
const db = await instance.connect();
const rows = async sql => (await db.runAndReadAll(sql)).getRows();
const answer = {};
for (const path of process.argv.slice(2)) {
  const table = `read_parquet('${path.replaceAll("'", "''")}')`;
  const of = {rows: 0, columns: [], sums: {}, texts: {}};
  of.rows = Number((await rows(`SELECT count(*) FROM ${table}`))[0][0]);
  for (const [name, type] of await rows(`DESCRIBE SELECT * FROM ${table}`)) {
    of.columns.push(name);
    if (type === 'VARCHAR') {
      const counts = await rows(`SELECT "${name}", count(*)::INTEGER FROM ${table} GROUP BY ALL`);
      of.texts[name] = Object.fromEntries(counts);
    } else {
      const value = type.startsWith('TIMESTAMP') ? `epoch_ns("${name}")` : `"${name}"`;
      const [[sum]] = await rows(`SELECT sum(${value}::HUGEINT)::VARCHAR FROM ${table}`);
      of.sums[name] = BigInt.asUintN(64, BigInt(sum)).toString();
    }
  }
  answer[path] = of;
}
console.log(JSON.stringify(answer));

// Reads Parquet files with hyparquet and prints {file: {rows, sums, texts}} as JSON. Sums are modulo 2^64.
import {asyncBufferFromFile, parquetReadObjects} from 'hyparquet';
import {compressors} from 'hyparquet-compressors';

const answer = {};
for (const path of process.argv.slice(2)) {
  const file = await asyncBufferFromFile(path);
  // hyparquet's own parser of timestamps rounds to milliseconds.
  const rows = await parquetReadObjects({file, compressors, parsers: {timestampFromNanoseconds: ns => ns}});
  const of = {rows: rows.length, columns: rows.length > 0 ? Object.keys(rows[0]) : [], sums: {}, texts: {}};
  for (const row of rows) {
    for (const [name, value] of Object.entries(row)) {
      if (typeof value === 'string') {
        const counts = of.texts[name] ??= {};
        counts[value] = (counts[value] ?? 0) + 1;
      } else {
        of.sums[name] = BigInt.asUintN(64, (of.sums[name] ?? 0n) + BigInt(value));
      }
    }
  }
  answer[path] = of;
}
console.log(JSON.stringify(answer, (_key, value) => typeof value === 'bigint' ? value.toString() : value));

// Runs a query of two columns with DuckDB and prints an object of its rows.
import {DuckDBInstance} from '@duckdb/node-api';

const instance = await DuckDBInstance.create(':memory:');
const db = await instance.connect();
const rows = (await db.runAndReadAll(process.argv[2])).getRows();
console.log(JSON.stringify(Object.fromEntries(rows.map(([name, value]) => [name, Number(value)]))));
